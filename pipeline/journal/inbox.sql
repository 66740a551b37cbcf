-- The one door for rows: a whole group goes in with one INSERT, as JSON, and one call into SQLite.
-- The database's thread lets go of the interpreter once for it, and takes it back once.
CREATE TEMP VIEW inbox AS SELECT
  NULL AS runs, NULL AS tickets, NULL AS trails, NULL AS answers, NULL AS bodies,
  NULL AS links, NULL AS ends, NULL AS forgotten, NULL AS minutes;

-- In the order in which rows need each other.
CREATE TEMP TRIGGER inbox_taken INSTEAD OF INSERT ON inbox BEGIN
  INSERT OR IGNORE INTO run (id, began)
  SELECT value ->> 0, value ->> 1 FROM json_each(new.runs);

  INSERT OR IGNORE INTO ticket (
    id, lane, trace_id, key, trace_crc, item_crc, stamp, created, priority,
    pulled, entry, payload, token, outcome, stage, ended
  )
  SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13,
    value ->> 14, value ->> 15
  FROM json_each(new.tickets);

  INSERT OR IGNORE INTO trail (ticket, at, steps)
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(new.trails);

  -- Where a body begins in the bytes of all, and how long it is.
  INSERT OR IGNORE INTO answer (id, verdict, detail, size, body)
  SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3,
    substr(new.bodies, 1 + (value ->> 4), value ->> 5)
  FROM json_each(new.answers);

  UPDATE ticket SET answer = kept.value ->> 0
  FROM json_each(new.links) AS kept WHERE ticket.id = kept.value ->> 1;

  UPDATE ticket SET
    outcome = gone.value ->> 1, stage = gone.value ->> 2, ended = gone.value ->> 3,
    payload = NULL, token = NULL, answer = NULL
  FROM json_each(new.ends) AS gone WHERE ticket.id = gone.value ->> 0;

  DELETE FROM answer WHERE id IN (SELECT value FROM json_each(new.forgotten));

  INSERT OR REPLACE INTO minute (lane, at, data)
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(new.minutes);
END;
