//! `POST …/warm`: jobs of the API that ask this server for URLs, so that its caches have them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Gate, Kind, Origin, Proxy, Request};
use serde_json::{Value, json};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=pond:1m max_size=64m;
    proxy_cache_valid 200 1h;
    proxy_cache_key $host$uri$http_accept_language;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shop.example;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache pond; }
        location /closed/ { deny all; proxy_pass http://%%ORIGIN%%; proxy_cache pond; }
        location /secret/ { internal; proxy_pass http://%%ORIGIN%%; proxy_cache pond; }
        location /api { api write=on; allow 127.0.0.1; }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name blog.example;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache pond; }
    }";

/// A configuration with so many workers, whose requests to the origin say its name.
fn named(name: &str, workers: usize) -> String {
    let http = CONF.replace(
        "location /api",
        &format!("location = /name {{ return 200 {name}; }} location /api"),
    );
    format!(
        "%%GLOBALS%% worker_processes {workers}; events {{}}
         http {{ %%HTTP%% proxy_set_header X-Conf {name}; {http} }}"
    )
}

const WAIT: Duration = Duration::from_secs(20);

struct Site {
    client: Client,
    proxy: Proxy,
    origin: Origin,
}

impl Site {
    fn start() -> Result<Site> {
        Site::start_with(CONF)
    }

    fn start_with(conf: &str) -> Result<Site> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("hello"));
        let proxy = Proxy::new(Kind::Millpond, conf).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            proxy,
            origin,
        })
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.proxy.port())
    }

    fn send(&self, request: Request) -> Result<(u16, Value)> {
        let request = request.host("127.0.0.1").header("Millpond-Api", "1");
        let response = self.client.send(&request)?;
        let text = response.text();
        let said = serde_json::from_str(&text).context(text)?;
        Ok((response.status, said))
    }

    fn order(&self, order: &Value) -> Result<(u16, Value)> {
        self.send(Request::post("/api/millpond/1/warm", order.to_string()))
    }

    /// Waits until no job runs; the newest.
    fn ended(&self) -> Result<Value> {
        let job = || -> Result<Option<Value>> {
            let (_, said) = self.send(Request::get("/api/millpond/1/warm"))?;
            let jobs = said["jobs"].as_array().context("jobs")?;
            let is_running = jobs.iter().any(|job| job["is_running"] == true);
            Ok(jobs.first().cloned().filter(|_| !is_running))
        };
        Deadline::after(WAIT)
            .poll(|| job().transpose())
            .context("a job runs on")?
    }

    /// Orders some URLs of both sites, and waits until they are asked for.
    fn order_held(&self, gate: &Gate) -> Result<()> {
        self.origin
            .route("/*", Answer::new(200).body("hello").hold_head(gate));
        let of = |host| (0..10).map(move |it| self.url(host, &format!("/{it}")));
        let urls: Vec<String> = of("shop.example").chain(of("blog.example")).collect();
        let (status, job) = self.order(&json!({"urls": urls, "users": 2, "rate": 10000}))?;
        ensure!(status == 202, "{job}");
        self.origin.wait_for_requests(2)?;
        Ok(())
    }

    /// Reloads, and waits until a configuration answers.
    fn reload(&mut self, conf: &str, name: &str) -> Result<()> {
        self.proxy.set_conf(conf)?;
        self.proxy.reload()?;
        let answers = || {
            let request = Request::get("/name").host("shop.example");
            self.client.send(&request).ok().map(|it| it.text())
        };
        Deadline::after(WAIT)
            .poll(|| answers().filter(|text| text == name))
            .with_context(|| format!("{name} does not come"))?;
        Ok(())
    }

    fn cache_status(&self, host: &str, path: &str) -> Result<String> {
        let response = self.client.send(&Request::get(path).host(host))?;
        Ok(response.header("X-Cache").unwrap_or("-").to_owned())
    }
}

#[test]
fn what_a_job_has_asked_for_is_found_by_users() -> Result<()> {
    let site = Site::start()?;
    let urls = [
        site.url("shop.example", "/a?b"),
        site.url("blog.example", "/c"),
        site.url("shop.example", "/a?b"),
    ];
    let (status, job) = site.order(&json!({"urls": urls, "users": 1}))?;
    assert_eq!((status, &job["all"]), (202, &json!(3)));
    let job = site.ended()?;
    assert_eq!(
        (&job["done"], &job["failed"]),
        (&json!(3), &json!(0)),
        "{job}"
    );
    assert_eq!(job["answers"], json!({"hit": 1, "miss": 2}));
    assert_eq!(site.cache_status("shop.example", "/a?b")?, "HIT");
    assert_eq!(site.cache_status("blog.example", "/c")?, "HIT");
    assert_eq!(site.cache_status("shop.example", "/c")?, "MISS");
    // Fields choose what is stored.
    let order = json!({"urls": [urls[0]], "fields": {"Accept-Language": "de"}});
    assert_eq!(site.order(&order)?.0, 202);
    assert_eq!(site.ended()?["answers"], json!({"miss": 1}));
    let german = Request::get("/a?b")
        .host("shop.example")
        .header("Accept-Language", "de");
    assert_eq!(site.client.send(&german)?.header("X-Cache"), Some("HIT"));
    Ok(())
}

#[test]
fn what_clients_may_not_have_no_job_gets_and_failures_are_told() -> Result<()> {
    let site = Site::start()?;
    site.origin.route("/broken", Answer::new(500).body("no"));
    let paths = ["/closed/a", "/secret/a", "/broken"];
    let mut urls: Vec<String> = paths
        .iter()
        .map(|path| site.url("shop.example", path))
        .collect();
    urls.push("http://shop.example:1/none".to_owned());
    assert_eq!(site.order(&json!({"urls": urls}))?.0, 202);
    let job = site.ended()?;
    assert_eq!(
        (&job["done"], &job["failed"]),
        (&json!(0), &json!(4)),
        "{job}"
    );
    let failures = job["failures"].as_array().context("failures")?;
    for (url, why) in urls
        .iter()
        .zip(["status 403", "status 404", "status 500", "no server"])
    {
        let failure = failures.iter().find(|it| it["url"] == **url);
        let told = failure
            .and_then(|it| it["why"].as_str())
            .context(url.clone())?;
        ensure!(told.contains(why), "{url}: {told}");
    }
    assert_eq!(site.origin.requests().len(), 1);
    Ok(())
}

#[test]
fn a_job_that_is_stopped_begins_no_more() -> Result<()> {
    let site = Site::start()?;
    let gate = Gate::new();
    site.origin
        .route("/*", Answer::new(200).body("hello").hold_head(&gate));
    let urls: Vec<String> = (0..50)
        .map(|it| site.url("shop.example", &format!("/{it}")))
        .collect();
    let (status, job) = site.order(&json!({"urls": urls, "users": 2, "rate": 10000}))?;
    assert_eq!(status, 202);
    site.origin.wait_for_requests(2)?;
    let target = format!("/api/millpond/1/warm?id={}", job["id"]);
    assert_eq!(site.send(Request::new("DELETE", &target))?.0, 200);
    gate.open();
    let job = site.ended()?;
    assert_eq!(
        (&job["all"], &job["done"]),
        (&json!(50), &json!(2)),
        "{job}"
    );
    assert_eq!(site.origin.requests().len(), 2);
    assert_eq!(job["why"], json!("it was told to stop"));
    assert_eq!(
        site.send(Request::new("DELETE", "/api/millpond/1/warm?id=77"))?
            .0,
        404
    );
    Ok(())
}

#[test]
fn a_job_goes_on_over_a_reload_under_the_new_configuration() -> Result<()> {
    let mut site = Site::start_with(&named("one", 1))?;
    let gate = Gate::new();
    site.order_held(&gate)?;
    site.reload(&named("two", 1), "two")?;
    gate.open();
    let job = site.ended()?;
    assert_eq!(
        (&job["done"], &job["failed"]),
        (&json!(20), &json!(0)),
        "{job}"
    );
    assert_eq!(job["why"], Value::Null);
    // Two were on their way.
    let requests = site.origin.requests();
    let asked_by = |name| {
        let names = requests.iter().map(|it| it.header("X-Conf"));
        names.filter(|it| *it == Some(name)).count()
    };
    assert_eq!((asked_by("one"), asked_by("two")), (2, 18));
    assert_eq!(site.cache_status("blog.example", "/9")?, "HIT");
    Ok(())
}

#[test]
fn another_worker_takes_over_the_jobs_of_one_that_leaves() -> Result<()> {
    let mut site = Site::start_with(&named("one", 3))?;
    // The most that run at a time, of which the kernel gives each worker some.
    let gate = Gate::new();
    for _ in 0..4 {
        site.order_held(&gate)?;
    }
    site.reload(&named("two", 1), "two")?;
    gate.open();
    site.ended()?;
    let (_, said) = site.send(Request::get("/api/millpond/1/warm"))?;
    let jobs = said["jobs"].as_array().context("jobs")?;
    for job in jobs {
        assert_eq!(
            (&job["done"], &job["failed"]),
            (&json!(20), &json!(0)),
            "{job}"
        );
    }
    assert_eq!(jobs.len(), 4);
    Ok(())
}

#[test]
fn a_job_ends_with_a_reason_when_its_zone_or_its_servers_left_with_a_reload() -> Result<()> {
    let one = named("one", 1);
    let without_zone = named("two", 1).replace("pond", "lake");
    let without_servers = named("two", 1)
        .replace("shop.example", "mill.example")
        .replace("blog.example", "weir.example");
    for (conf, reason) in [(without_zone, "zone"), (without_servers, "server")] {
        let mut site = Site::start_with(&one)?;
        let gate = Gate::new();
        site.order_held(&gate)?;
        site.reload(&conf, "two")?;
        gate.open();
        let job = site.ended()?;
        assert_eq!(
            (&job["all"], &job["done"], &job["failed"]),
            (&json!(20), &json!(2), &json!(0)),
            "{job}"
        );
        let why = job["why"].as_str().context("no reason")?;
        ensure!(why.contains(reason), "{why}");
    }
    Ok(())
}

#[test]
fn orders_that_are_not_understood_or_not_allowed_are_refused() -> Result<()> {
    let site = Site::start()?;
    for order in [
        json!([]),
        json!({"urls": []}),
        json!({"urls": ["http://h/"], "x": 1}),
    ] {
        assert_eq!(site.order(&order)?.0, 400, "{order}");
    }
    // A page of another site could send this.
    let request = Request::post("/api/millpond/1/warm", "{}").host("127.0.0.1");
    assert_eq!(site.client.send(&request)?.status, 403);
    assert_eq!(site.origin.requests().len(), 0);
    Ok(())
}
