-- The catalogue as a database: see docs/catalogue.md, which repeats this for people.

-- What is said of the catalogue as a whole.
CREATE TABLE catalogue (
    name  TEXT PRIMARY KEY,  -- 'version', 'exported'
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE entries (
    number       INTEGER PRIMARY KEY,  -- within this database
    zone         TEXT NOT NULL,        -- the zone it is stored in
    id           TEXT NOT NULL,        -- 32 hexadecimal digits, unique in its zone
    key          TEXT NOT NULL,        -- the cache key
    url          TEXT,                 -- as far as host and key tell it
    site         TEXT NOT NULL,        -- whose it is (cache_site)
    host         TEXT NOT NULL,        -- what it was filled for
    status       INTEGER NOT NULL,     -- of the answer
    type         TEXT NOT NULL,        -- media type, in lower case, without parameters
    content_type TEXT NOT NULL,        -- as the origin wrote it
    length       INTEGER NOT NULL,     -- bytes of the whole body
    held         INTEGER NOT NULL,     -- bytes of it that are stored
    slice_size   INTEGER,              -- bytes of a slice; NULL if it is not in slices
    slices       INTEGER,              -- how many it has
    slices_held  INTEGER,              -- how many of them are stored
    stored       INTEGER NOT NULL,     -- seconds since 1970: stored, or last found unchanged
    expires      INTEGER NOT NULL,     -- fresh until then, inclusive
    used         INTEGER NOT NULL,     -- last used
    is_fresh     INTEGER NOT NULL,     -- 1 if it was fresh when it was listed
    hits         INTEGER NOT NULL,     -- how often it was found, as far as that is counted
    vary         TEXT,                 -- names of fields that it varies by
    variant      TEXT,                 -- what the request said in them
    dir          TEXT,                 -- directory of the disk that its head is on
    segment      INTEGER,              -- the segment there
    record_bytes INTEGER,              -- bytes of that record
    node         TEXT                  -- the node of the fleet that has it; NULL without --fleet
);

-- What an entry can be purged by (proxy_cache_tag).
CREATE TABLE tags (
    entry INTEGER NOT NULL REFERENCES entries (number),
    tag   TEXT NOT NULL
);

-- Which bytes of a body are stored; at most 1000 ranges of each entry.
CREATE TABLE ranges (
    entry  INTEGER NOT NULL REFERENCES entries (number),
    first  INTEGER NOT NULL,  -- the first byte
    behind INTEGER NOT NULL   -- the first byte behind them
);

CREATE VIEW by_site AS
    SELECT site, count(*) AS entries, sum(held) AS held, sum(length) AS length, sum(hits) AS hits,
           sum(is_fresh) AS fresh, min(stored) AS oldest, max(used) AS used
    FROM entries GROUP BY site;

CREATE VIEW by_type AS
    SELECT type, count(*) AS entries, sum(held) AS held, sum(length) AS length, sum(hits) AS hits,
           sum(is_fresh) AS fresh, min(stored) AS oldest, max(used) AS used
    FROM entries GROUP BY type;

CREATE VIEW by_status AS
    SELECT status, count(*) AS entries, sum(held) AS held, sum(length) AS length, sum(hits) AS hits,
           sum(is_fresh) AS fresh, min(stored) AS oldest, max(used) AS used
    FROM entries GROUP BY status;

CREATE VIEW by_zone AS
    SELECT zone, count(*) AS entries, sum(held) AS held, sum(length) AS length, sum(hits) AS hits,
           sum(is_fresh) AS fresh, min(stored) AS oldest, max(used) AS used
    FROM entries GROUP BY zone;

CREATE VIEW by_tag AS
    SELECT tag, count(*) AS entries, sum(held) AS held, sum(length) AS length, sum(hits) AS hits,
           sum(is_fresh) AS fresh, min(stored) AS oldest, max(used) AS used
    FROM tags JOIN entries ON entries.number = tags.entry GROUP BY tag;
