import { FENCED, freeRows, LEFT_OUT, leftRows, ownedLanes, pastLocks, sameRow } from "../lanes/index.ts";
import { defineStatement, type Statement } from "../storage/index.ts";
import type { LocalHop } from "../transport/index.ts";

/**
 * Statements that settle rows. A relay's statements are fenced: they name their claims and do nothing if one
 * is invalid. The optimistic sender's statements name the row only: a sent row is settled under any owner of
 * its lane.
 */
export function settleStatements(schema: string) {
  const rows = "unnest($4::text::integer[], $5::text::bigint[], $6::text::text[])";
  const answer = `select pg_current_xact_id()::text as xid,
              (select coalesce(array_agg(lane), '{}') from owned) as owned`;
  const leased = "unnest($1::text::integer[], $2::text::bigint[], $3::text::text[])";
  const isGoing = "row.lane = going.lane and row.seq = going.seq";
  const isAmongGoing = "(row.lane, row.seq) in (select lane, seq from going)";
  const failingSql = (condition: string): string => `kept as (
         update ${schema}.outbox as row
            set attempts = row.attempts + 1, lease_until = null, last_error = failure.error,
                due_at = clock_timestamp() + failure.delay_ms * interval '1 ms'
           from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::double precision[], $8::text::text[])
                as failure (lane, seq, id, delay_ms, error)
          where ${sameRow("failure")} and ${condition}
         returning row.lane, row.seq
       )`;
  return {
    sent: defineStatement(
      "sagabox.outbox.sent",
      `with ${ownedLanes(schema)}, gone as (
         delete from ${schema}.outbox as row
          using ${rows} as done (lane, seq, id)
          where ${sameRow("done")} and ${FENCED}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$7")})
       ${answer}`,
    ),
    // Like `sent`, but finds the rows by ctid, without an index. A row that was changed since its read has a
    // new ctid, and another row may have the old one. So the statement fails as a whole unless it deleted
    // exactly these sequence numbers. Its error text appears in the log of the server.
    sentInPlace: defineStatement(
      "sagabox.outbox.sent_in_place",
      `with ${ownedLanes(schema)}, gone as (
         delete from ${schema}.outbox as row
          where row.ctid = any($4::text::tid[]) and ${FENCED}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$6")})
       ${answer},
              (select case when not ${FENCED} or array_agg(seq order by seq) = $5::text::bigint[] then count(*)::integer
                           else ('sagabox settles a batch by name instead, since rows of it have moved: ' || count(*))::integer
                      end from gone) as gone`,
    ),
    sentPast: defineStatement(
      "sagabox.outbox.sent_past_locks",
      `with ${pastLocks(schema, "outbox", rows)}, gone as (
         delete from ${schema}.outbox as row using going
          where ${isGoing}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$7")})
       ${answer}, ${LEFT_OUT}`,
    ),
    failed: defineStatement(
      "sagabox.outbox.failed",
      `with ${ownedLanes(schema)}, ${failingSql(FENCED)} ${answer}`,
    ),
    failedPast: defineStatement(
      "sagabox.outbox.failed_past_locks",
      `with ${pastLocks(schema, "outbox", rows)}, ${failingSql(isAmongGoing)} ${answer}, ${LEFT_OUT}`,
    ),
    dead: defineStatement(
      "sagabox.outbox.dead",
      `with ${ownedLanes(schema)}, ${dyingSql(schema, FENCED)} ${answer}`,
    ),
    deadPast: defineStatement(
      "sagabox.outbox.dead_past_locks",
      `with ${pastLocks(schema, "outbox", rows)}, ${dyingSql(schema, isAmongGoing)} ${answer}, ${LEFT_OUT}`,
    ),
    // Rows leased to the optimistic sender, which has sent them.
    sentLeased: defineStatement(
      "sagabox.outbox.sent_leased",
      `with gone as (
         delete from ${schema}.outbox as row
          using unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as done (lane, seq, id)
          where ${sameRow("done")}
         returning row.lane, row.seq, row.again, row.message_id
       )
       ${receiptsSql(schema, "$4")}`,
    ),
    // Like `sentLeased`, but skips rows that other sessions have locked: their leases expire, and a relay
    // sends them again.
    sentLeasedPast: defineStatement(
      "sagabox.outbox.sent_leased_past_locks",
      `with ${freeRows(schema, "outbox", leased, { keepOrder: false })}, gone as (
         delete from ${schema}.outbox as row using going
          where ${isGoing}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$4")})
       select ${leftRows()}`,
    ),
    committedLeased: defineStatement(
      "sagabox.outbox.committed_leased",
      `select found.seq::text
         from unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as given (lane, seq, id)
        cross join lateral (
          select row.seq, row.lease_until from ${schema}.outbox as row where ${sameRow("given")} offset 0
        ) as found
        where found.lease_until > clock_timestamp()`,
    ),
    // Skips rows that other sessions have locked: their leases expire.
    releaseLeased: defineStatement(
      "sagabox.outbox.release_leased",
      `with ${freeRows(schema, "outbox", leased, { keepOrder: false })}
       update ${schema}.outbox as row
          set lease_until = null
         from going
        where ${isGoing} and row.lease_until is not null`,
    ),
  };
}

/** Statements that settle sent rows. Those of a local hop also deliver the messages to the queue. */
export interface SentStatements {
  readonly sent: Statement;
  readonly sentPast: Statement;
  /** Undefined if rows can be settled by name only. */
  readonly sentInPlace: Statement | undefined;
  readonly sentLeased: Statement;
  readonly sentLeasedPast: Statement;
  /** Wakes consumers after the rows of these lanes were delivered. */
  readonly wake: (lanes: readonly number[]) => void;
}

export function sentStatements(schema: string, hop: LocalHop | undefined): SentStatements {
  if (hop === undefined) return { ...settleStatements(schema), wake: () => undefined };
  return {
    sent: hop.settle,
    sentPast: hop.settlePast,
    sentInPlace: undefined,
    sentLeased: hop.settleLeased,
    sentLeasedPast: hop.settleLeasedPast,
    wake: (lanes) => hop.wake(lanes),
  };
}

// A message that holds its key when it dies leaves a row that is never due, which keeps its position in the
// stream.
function dyingSql(schema: string, condition: string): string {
  return `dying as materialized (
         select row.lane as row_lane, row.seq as row_seq, row.attempts, message.*, death.charged, death.reason, death.error_type,
                death.error_message, death.stack_trace, death.fingerprint,
                message.holds_on_death and death.reason <> 'expired' as stays
           from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::boolean[], $8::text::text[],
                       $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[])
                as death (lane, seq, id, charged, reason, error_type, error_message, stack_trace, fingerprint)
           join ${schema}.outbox as row on ${sameRow("death")}
           join ${schema}.message on message.id = row.message_id and message.written_on = row.written_on
          where ${condition}
       ), gone as (
         delete from ${schema}.outbox as row using dying
          where row.lane = dying.row_lane and row.seq = dying.row_seq and not dying.stays
       ), tomb as (
         update ${schema}.outbox as row
            set due_at = 'infinity', lease_until = null, attempts = row.attempts + dying.charged::integer::smallint,
                last_error = dying.error_message
           from dying
          where row.lane = dying.row_lane and row.seq = dying.row_seq and dying.stays
       ), buried as (
         insert into ${schema}.dead_letter
                (origin, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
                 correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
                 written_at, expires_at, reason, attempts, error_type, error_message, stack_trace, held_lane, held_seq,
                 fingerprint)
         select 'outbox', id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
                correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
                written_at, expires_at, reason, attempts + charged::integer, error_type, error_message, stack_trace,
                case when stays then row_lane end, case when stays then row_seq end, fingerprint
           from dying
       )`;
}

/**
 * Columns of rows that were republished: their seq is not that of the message, so the receipt stores the ids.
 * Null only in receipts of older versions.
 */
const SENT_AGAIN = `coalesce(array_agg(seq) filter (where again), '{}'), array_agg(message_id) filter (where again)`;

/** Inserts one receipt per lane from the rows in `gone`. */
export function receiptsSql(schema: string, relay: string): string {
  return `insert into ${schema}.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
          select lane, min(seq), max(seq), array_agg(seq order by seq), ${relay}::text, clock_timestamp(),
                 (clock_timestamp() at time zone 'utc')::date, ${SENT_AGAIN}
            from gone group by lane`;
}
