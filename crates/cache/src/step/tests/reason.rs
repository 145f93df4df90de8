//! Account of a walk.

use super::origin::{failure, ok, status};
use super::*;

impl Answer {
    /// The word, and what else is told of the request.
    fn told(&self) -> String {
        let account = self.account;
        let mut text = account.word().unwrap_or("-").to_string();
        for (flag, word) in [
            (account.forward.is_some(), " forwarded"),
            (account.is_stored, " stored"),
            (account.is_collapsed, " collapsed"),
        ] {
            text.push_str(if flag { word } else { "" });
        }
        text
    }
}

async fn told(bench: &Bench, client: Client) -> String {
    bench.send(client).await.told()
}

#[test]
fn misses_hits_and_bypasses_are_told() {
    run(|bench| async move {
        bench.script([ok("1"), ok("2"), ok("3").field("Vary", "A"), ok("4")]);
        assert_eq!(told(&bench, client("k")).await, "uri-miss forwarded stored");
        assert_eq!(told(&bench, client("k")).await, "fresh");
        let bypassed = client("k").bypassed();
        assert_eq!(told(&bench, bypassed).await, "bypass forwarded stored");
        let varying = client("v").field("A", "1");
        assert_eq!(told(&bench, varying).await, "uri-miss forwarded stored");
        let other = client("v").field("A", "2");
        assert_eq!(told(&bench, other).await, "vary-miss forwarded stored");
    });
}

#[test]
fn why_an_answer_is_not_stored_is_told() {
    run(|bench| async move {
        let cases = [
            (ok("").cc("no-store"), "no-store"),
            (ok("").cc("no-cache"), "no-cache"),
            (ok("").cc("private, max-age=9"), "private"),
            (ok("").cc("max-age=0"), "expired"),
            (ok("").cc("max-age=x"), "malformed"),
            (ok("").silent(), "no-time"),
            (ok("").field("Set-Cookie", "a=b"), "set-cookie"),
            (ok("").field("Vary", "*"), "vary-star"),
            (ok("").field("X-Accel-Expires", "0"), "accel-expires"),
            (ok("").field("X-Accel-Redirect", "/x"), "accel-redirect"),
            (ok("").length(1 << 40), "too-large"),
        ];
        for (script, expected) in cases {
            bench.script([script]);
            let expected = format!("{expected} forwarded");
            assert_eq!(told(&bench, client("k")).await, expected);
        }
        bench.script([ok("")]);
        let excluded = client("k").not_stored();
        assert_eq!(told(&bench, excluded).await, "excluded forwarded");
    });
}

#[test]
fn what_becomes_of_a_stale_entry_is_told() {
    run(|mut bench| async move {
        bench.policies.revalidate.conditional = true;
        let causes = [StaleCause::Error, StaleCause::Http500];
        bench.policies.stale.causes = causes.into_iter().collect();
        let lasting = ok("old").cc("max-age=60").field("ETag", "\"1\"");
        bench.script([
            lasting,
            failure(StaleCause::Error, 502),
            status(500),
            status(304),
            ok("new").cc("max-age=60, stale-while-revalidate=60"),
            ok("newer"),
        ]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        for expected in ["stale-if-error", "stale-if-error", "not-modified"] {
            let expected = format!("{expected} forwarded");
            assert_eq!(told(&bench, client("k")).await, expected);
        }
        pass_time(61 * SECOND).await;
        assert_eq!(told(&bench, client("k")).await, "stale forwarded stored");
        pass_time(61 * SECOND).await;
        bench.policies.revalidate.in_background = true;
        assert_eq!(told(&bench, client("k")).await, "stale-while-revalidate");
    });
}

#[test]
fn waiters_say_what_they_got() {
    run(|mut bench| async move {
        bench.policies.lock.timeout = 2 * SECOND;
        bench.script([ok("1").after(100).pause(100).piece("2")]);
        let leader = bench.start(client("k"));
        let waiter = bench.start(client("k"));
        assert_eq!(leader.await.unwrap().told(), "uri-miss forwarded stored");
        assert_eq!(waiter.await.unwrap().told(), "uri-miss forwarded collapsed");
        let kept_out = || ok("").cc("no-store").after(100);
        bench.script([kept_out(), kept_out(), kept_out(), kept_out()]);
        let (leader, waiter) = (bench.start(client("h")), bench.start(client("h")));
        assert_eq!(leader.await.unwrap().told(), "no-store forwarded");
        assert_eq!(waiter.await.unwrap().told(), "no-store forwarded");
        bench.policies.hit_for_pass.time = OffOr::Off;
        let leader = bench.start(client("p"));
        let waiter = bench.start(client("p"));
        assert_eq!(leader.await.unwrap().told(), "no-store forwarded");
        assert_eq!(waiter.await.unwrap().told(), "not-shared forwarded");
        bench.script([ok("1").after(3000), ok("2")]);
        let leader = bench.start(client("t"));
        let waiter = bench.start(client("t"));
        assert_eq!(waiter.await.unwrap().told(), "lock-timeout forwarded");
        assert_eq!(leader.await.unwrap().told(), "uri-miss forwarded stored");
    });
}

/// RFC 9211 §2.6: who waited for an answer that came whole shares it as well as who read along.
#[test]
fn waiters_of_a_fill_that_is_over_at_once_share_it() {
    run(|mut bench| async move {
        bench.policies.revalidate.conditional = true;
        let quick = ok("1").field("ETag", "\"1\"").after(100);
        bench.script([quick, status(304).after(100)]);
        for (why, leads) in [
            ("uri-miss", "uri-miss forwarded stored"),
            ("stale", "not-modified forwarded"),
        ] {
            let leader = bench.start(client("k"));
            let waiter = bench.start(client("k"));
            assert_eq!(leader.await.unwrap().told(), leads);
            let waiter = waiter.await.unwrap();
            assert_eq!(waiter.text(), "HIT 1");
            assert_eq!(waiter.told(), format!("{why} forwarded collapsed"));
            assert_eq!(told(&bench, client("k")).await, "fresh");
            pass_time(61 * SECOND).await;
        }
    });
}
