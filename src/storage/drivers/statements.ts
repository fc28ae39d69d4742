import { defineStatement } from "../statement.ts";

export const setConfig = defineStatement(
  "sagabox.set_config",
  "select set_config($1::text, $2::text, false)",
);

/** Fails with a division by zero when the transaction is not the one that set the mark when it began. */
export const checkMark = defineStatement(
  "sagabox.check_mark",
  "select 1 / (current_setting('sagabox.transaction', true) is not distinct from 'open')::integer",
);

/** The shortest question: the server answers it after everything that was sent before. */
export const ROUND_TRIP = "select 1";
