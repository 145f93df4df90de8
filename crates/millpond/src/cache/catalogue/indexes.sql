-- Made when all entries are there, which is faster than keeping them up.
CREATE INDEX entries_by_id ON entries (zone, id);
CREATE INDEX entries_by_key ON entries (key);
CREATE INDEX entries_by_site ON entries (site);
CREATE INDEX entries_by_type ON entries (type);
CREATE INDEX tags_by_entry ON tags (entry);
CREATE INDEX tags_by_tag ON tags (tag);
CREATE INDEX ranges_by_entry ON ranges (entry);
