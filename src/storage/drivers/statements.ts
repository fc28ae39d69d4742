import { defineStatement } from "../statement.ts";

export const setConfig = defineStatement(
  "sagabox.set_config",
  "select set_config($1::text, $2::text, false)",
);

/** Fails with a division by zero if the transaction is not the one that set the mark at its BEGIN. */
export const checkMark = defineStatement(
  "sagabox.check_mark",
  "select 1 / (current_setting('sagabox.transaction', true) is not distinct from 'open')::integer",
);

/** The server answers this after all statements that were sent before it. */
export const ROUND_TRIP = "select 1";

/**
 * Prepares a transaction that a library opened: takes a transaction id, by which the transaction is recognized at its end,
 * and sets its limits, which end with it. An empty limit leaves the setting of the session.
 */
export const enterTransaction = defineStatement(
  "sagabox.enter_transaction",
  `select pg_current_xact_id()::text as xid, pg_backend_pid() as pid,
          case when $1::text <> '' then set_config('idle_in_transaction_session_timeout', $1::text, true) end as idle,
          case when $2::text <> '' then set_config('lock_timeout', $2::text, true) end as lock`,
);

/** The id of the current transaction; null if it has ended and no other has written since. */
export const readTransactionId = defineStatement(
  "sagabox.read_transaction_id",
  "select pg_current_xact_id_if_assigned()::text as xid",
);

/** How a transaction ended: committed, aborted, or in progress. */
export const readTransactionEnd = defineStatement(
  "sagabox.read_transaction_end",
  "select pg_xact_status($1::text::xid8) as status",
);

/** Ends the session that runs a transaction, unless it runs another one by now. */
export const endSession = defineStatement(
  "sagabox.end_session",
  `select pg_terminate_backend(pid) as done from pg_stat_activity
    where pid = $1::integer and backend_xid = $2::text::xid8::xid`,
);
