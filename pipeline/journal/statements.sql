-- Every statement by its name.

-- name: end_run
UPDATE run SET ended = ? WHERE id = ?

-- name: write
INSERT INTO inbox (runs, tickets, trails, answers, bodies, links, ends, forgotten, minutes)
VALUES (:runs, :tickets, :trails, :answers, :bodies, :links, :ends, :forgotten, :minutes)

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

-- name: open_by_lane
SELECT lane, count(*) FROM ticket INDEXED BY ticket_open
WHERE outcome IS NULL AND id < ? GROUP BY lane ORDER BY lane

-- name: open_trails
SELECT trail.ticket, trail.steps
FROM ticket INDEXED BY ticket_open JOIN trail ON trail.ticket = ticket.id
WHERE lane = ? AND outcome IS NULL AND ticket.id < ?
ORDER BY trail.ticket, trail.at

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

-- name: trails_of
SELECT steps FROM trail WHERE ticket = ? ORDER BY at LIMIT ?

-- name: minutes
SELECT at, data FROM minute WHERE lane = ? AND at >= ? AND at < ? ORDER BY at

-- name: minutes_of_all
SELECT lane, at, data FROM minute WHERE at >= ? AND at < ? ORDER BY lane, at

-- name: prune_mark
SELECT max(id) FROM (
  SELECT id, pulled FROM ticket WHERE outcome IS NOT NULL OR pulled < :dead ORDER BY id LIMIT :rows
) WHERE pulled < :before

-- name: prune_trails
DELETE FROM trail WHERE ticket IN (
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
