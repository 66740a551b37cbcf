-- One row for each lane and minute: counters, rates, latencies, holds and events as a JSON object.
CREATE TABLE minute (
  lane TEXT NOT NULL,
  at   INTEGER NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (lane, at)
) WITHOUT ROWID;

CREATE INDEX minute_by_time ON minute (at);
