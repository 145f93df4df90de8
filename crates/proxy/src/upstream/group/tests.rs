//! Groups: whose turn it is, who rests, who stays.

use std::net::{IpAddr, Ipv4Addr};

use super::super::balance::{Selection, Wish};
use super::*;

fn peers(weights: &[u32]) -> Vec<Peer> {
    let peer = |(at, weight): (usize, &u32)| {
        let settings = PeerSettings {
            weight: *weight,
            ..PeerSettings::new(&at.to_string())
        };
        Peer::new(Address::Unix(at.to_string().into()), settings, None)
    };
    weights.iter().enumerate().map(peer).collect()
}

fn group(weights: &[u32]) -> Arc<Group> {
    group_by(weights, Method::RoundRobin)
}

fn group_by(weights: &[u32], method: Method) -> Arc<Group> {
    Arc::new(Group::new("g".to_string(), peers(weights), method))
}

/// Peers that are chosen by requests that stay.
fn picks(group: &Arc<Group>, count: usize, key: &str) -> Vec<String> {
    let pick = |_| one(group, key).settings.server.to_string();
    (0..count).map(pick).collect()
}

fn one(group: &Arc<Group>, key: &str) -> Arc<Peer> {
    select(group, key).pick(clock::instant()).unwrap()
}

fn select(group: &Arc<Group>, key: &str) -> Selection {
    let wish = Wish {
        key: key.to_string().into(),
        bound_to: None,
    };
    Selection::new(group, wish)
}

#[tokio::test(start_paused = true)]
async fn turns_are_smooth_and_by_weight() {
    let group = group(&[5, 1, 1]);
    assert_eq!(picks(&group, 7, ""), ["0", "0", "1", "0", "2", "0", "0"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_peer_rests_and_comes_back() {
    let group = group(&[1, 1]);
    let roster = group.roster();
    assert!(group.failed(&roster.primary.peers[0]));
    assert_eq!(picks(&group, 3, ""), ["1", "1", "1"]);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(picks(&group, 6, "").contains(&"0".to_string()));
}

#[tokio::test(start_paused = true)]
async fn one_request_tries_each_peer_once() {
    let group = group(&[1, 1, 1]);
    let mut selection = select(&group, "");
    let mut picks: Vec<String> = std::iter::from_fn(|| {
        selection
            .pick(clock::instant())
            .map(|peer| peer.name.to_string())
    })
    .collect();
    picks.sort_unstable();
    assert_eq!(picks, ["unix:0", "unix:1", "unix:2"]);
}

#[tokio::test(start_paused = true)]
async fn the_only_peer_never_rests_but_has_its_limit() {
    let mut peers = peers(&[1]);
    peers[0].settings.max_conns = 1;
    let group = Arc::new(Group::new("g".to_string(), peers, Method::RoundRobin));
    let peer = one(&group, "");
    assert!(select(&group, "").pick(clock::instant()).is_none());
    peer.release();
    group.failed(&peer);
    assert_eq!(&*one(&group, "").name, "unix:0");
}

#[tokio::test(start_paused = true)]
async fn the_least_busy_for_its_weight_is_taken() {
    let group = group_by(&[1, 2], Method::LeastConn);
    let picks = picks(&group, 6, "");
    assert_eq!(picks.iter().filter(|name| *name == "1").count(), 4);
    let roster = group.roster();
    roster.primary.peers[0].release();
    assert_eq!(&*one(&group, "").name, "unix:0");
}

#[tokio::test(start_paused = true)]
async fn addresses_that_stay_keep_their_peers() {
    let mut group = Group::new("g".to_string(), Vec::new(), Method::RoundRobin);
    group.named.push(NamedServer {
        host: "a".to_string(),
        service: None,
        port: 80,
        settings: PeerSettings::new("a:80"),
        valid_until: Mutex::default(),
    });
    let found = |last: &[u8]| -> Vec<Found> {
        let ip = |last: &u8| IpAddr::V4(Ipv4Addr::new(127, 0, 0, *last));
        last.iter().map(|last| Found::at(ip(last))).collect()
    };
    let names = |group: &Group| -> Vec<String> {
        group
            .roster()
            .peers()
            .map(|peer| peer.name.to_string())
            .collect()
    };
    group.update(0, &found(&[1, 2]));
    assert_eq!(names(&group), ["127.0.0.1:80", "127.0.0.2:80"]);
    let stays = Arc::clone(&group.roster().primary.peers[1]);
    stays.failed();
    group.update(0, &found(&[3, 2]));
    assert_eq!(names(&group), ["127.0.0.2:80", "127.0.0.3:80"]);
    assert!(Arc::ptr_eq(&group.roster().primary.peers[0], &stays));
    group.update(0, &[]);
    assert!(names(&group).is_empty());
    let group = Arc::new(group);
    assert!(select(&group, "").pick(clock::instant()).is_none());
}
