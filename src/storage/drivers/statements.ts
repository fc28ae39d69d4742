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
