// The filter of dead letters in addresses and in words.
import type { DeadLetterFilter } from "../../src/dashboard/api-types.ts";
import type { Query } from "./router.ts";

const FILTER = [
  "fingerprint",
  "origin",
  "consumer",
  "type",
  "topic",
  "reason",
  "messageId",
  "key",
  "correlationId",
  "text",
  "since",
  "until",
] as const;

/** The filter in an address. `group` is the name of the command line for a fingerprint. */
export function filterOf(query: Query): DeadLetterFilter {
  const given = { ...query, ...(query["group"] !== undefined && { fingerprint: query["group"] }) };
  return Object.fromEntries(
    Object.entries(given).filter(([name]) => (FILTER as readonly string[]).includes(name)),
  );
}

/** A filter in words. */
export function describeFilter(filter: DeadLetterFilter): string {
  const parts = Object.entries(filter).map(([name, value]) => `${name} ${String(value)}`);
  return parts.length === 0 ? "all open dead letters" : `open dead letters with ${parts.join(" and ")}`;
}
