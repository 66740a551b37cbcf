-- One row for each time the daemon ran. Without `ended` it did not end by itself.
CREATE TABLE run (
  id    INTEGER PRIMARY KEY,
  began REAL NOT NULL,
  ended REAL
);

-- One row for each ticket handed to us. `token` is sealed; it and `payload` go when the ticket ends.
CREATE TABLE ticket (
  id        INTEGER PRIMARY KEY,
  lane      TEXT NOT NULL,
  trace_id  TEXT NOT NULL,
  key       TEXT NOT NULL,
  trace_crc INTEGER NOT NULL,
  item_crc  INTEGER NOT NULL,
  stamp     REAL,
  created   REAL NOT NULL,
  priority  INTEGER NOT NULL,
  pulled    REAL NOT NULL,
  entry     TEXT NOT NULL,
  payload   TEXT,
  token     TEXT,
  answer    INTEGER,
  outcome   TEXT,
  stage     TEXT,
  ended     REAL
);

-- Four bytes an entry instead of a whole trace_id; what shares a checksum is told apart by its text.
CREATE INDEX ticket_by_trace ON ticket (trace_crc);
CREATE INDEX ticket_by_item ON ticket (item_crc);
CREATE INDEX ticket_open ON ticket (lane) WHERE outcome IS NULL;

-- One row for each ticket and group of rows it had steps in: a JSON list of [at, stage, what, attempt],
-- `at` in microseconds and never the same twice. Tickets are numbered as they come, so that new rows are near
-- each other and old ones are deleted from one end.
CREATE TABLE trail (
  ticket INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  steps  TEXT NOT NULL,
  PRIMARY KEY (ticket, at)
) WITHOUT ROWID;

-- Answers that have not been delivered, compressed.
CREATE TABLE answer (
  id      INTEGER PRIMARY KEY,
  verdict TEXT NOT NULL,
  detail  TEXT NOT NULL,
  size    INTEGER NOT NULL,
  body    BLOB NOT NULL
);
