-- Every statement by its name. `/*rows*/` stands for as many rows of parameters as there are to write.

-- name: begin_run
INSERT OR IGNORE INTO run (id, began) VALUES /*rows*/

-- name: end_run
UPDATE run SET ended = ? WHERE id = ?

-- name: add_tickets
INSERT OR IGNORE INTO ticket (
  id, lane, trace_id, key, trace_crc, item_crc, stamp, created, priority,
  pulled, entry, payload, token, outcome, stage, ended
) VALUES /*rows*/

-- name: add_steps
INSERT OR IGNORE INTO step (ticket, at, stage, what, attempt) VALUES /*rows*/

-- name: add_answers
INSERT OR IGNORE INTO answer (id, verdict, detail, size, body) VALUES /*rows*/

-- name: link_answers
WITH kept (answer, ticket) AS (VALUES /*rows*/)
UPDATE ticket SET answer = kept.answer FROM kept WHERE ticket.id = kept.ticket

-- name: end_tickets
WITH gone (ticket, outcome, stage, ended) AS (VALUES /*rows*/)
UPDATE ticket SET outcome = gone.outcome, stage = gone.stage, ended = gone.ended,
  payload = NULL, token = NULL, answer = NULL
FROM gone WHERE ticket.id = gone.ticket

-- name: forget_answers
DELETE FROM answer WHERE id IN (VALUES /*rows*/)

-- name: add_minutes
INSERT OR REPLACE INTO minute (lane, at, data) VALUES /*rows*/

-- name: last_run
SELECT id, ended IS NOT NULL FROM run ORDER BY id DESC LIMIT 1

-- name: last_numbers
SELECT (SELECT coalesce(max(id), 0) FROM ticket), (SELECT coalesce(max(id), 0) FROM answer)

-- name: open_tickets
SELECT ticket.id, trace_id, key, stamp, created, priority, pulled, entry, payload, token,
  answer.id, answer.size
FROM ticket INDEXED BY ticket_open LEFT JOIN answer ON answer.id = ticket.answer
WHERE lane = ? AND outcome IS NULL AND ticket.id < ?
ORDER BY ticket.id

-- name: open_steps
SELECT step.ticket, step.what
FROM ticket INDEXED BY ticket_open JOIN step ON step.ticket = ticket.id
WHERE lane = ? AND outcome IS NULL AND ticket.id < ?
ORDER BY step.ticket, step.at

-- name: delivered_keys
SELECT key FROM ticket WHERE lane = ? AND outcome = 'delivered' AND id < ? ORDER BY id DESC LIMIT ?

-- name: read_answer
SELECT verdict, detail, body FROM answer WHERE id = ?

-- name: tickets_by_trace
SELECT id, lane, trace_id, key, created, pulled, entry, outcome, stage, ended
FROM ticket WHERE trace_crc = ? AND trace_id = ? ORDER BY id DESC LIMIT ?

-- name: tickets_by_item
SELECT id, lane, trace_id, key, created, pulled, entry, outcome, stage, ended
FROM ticket WHERE item_crc = ? AND (key = ? OR key LIKE ? ESCAPE '\') ORDER BY id DESC LIMIT ?

-- name: steps_of
SELECT at, stage, what, attempt FROM step WHERE ticket = ? ORDER BY at LIMIT ?

-- name: minutes
SELECT at, data FROM minute WHERE lane = ? AND at >= ? AND at < ? ORDER BY at

-- name: minutes_of_all
SELECT lane, at, data FROM minute WHERE at >= ? AND at < ? ORDER BY lane, at

-- name: prune_mark
SELECT max(id) FROM (
  SELECT id, pulled FROM ticket WHERE outcome IS NOT NULL OR pulled < :dead ORDER BY id LIMIT :rows
) WHERE pulled < :before

-- name: prune_steps
DELETE FROM step WHERE ticket IN (
  SELECT id FROM ticket WHERE id <= :mark AND (outcome IS NOT NULL OR pulled < :dead)
)

-- name: prune_tickets
DELETE FROM ticket WHERE id <= :mark AND (outcome IS NOT NULL OR pulled < :dead)

-- name: prune_answers
DELETE FROM answer WHERE id IN (
  SELECT id FROM answer WHERE id < :first AND id NOT IN (
    SELECT answer FROM ticket WHERE outcome IS NULL AND answer IS NOT NULL
  ) LIMIT :rows
)

-- name: prune_minutes
DELETE FROM minute WHERE (lane, at) IN (SELECT lane, at FROM minute WHERE at < :before LIMIT :rows)
