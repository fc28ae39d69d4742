import { SagaboxError } from "../errors/index.ts";
import { flag, oneOf, text } from "../options/index.ts";
import type { Param } from "../storage/index.ts";
import type { DeadLetterReason } from "./describe-failure.ts";
import type { Condition } from "./statements.ts";

/** Selects dead letters. All given conditions must hold. */
export interface DeadLetterCriteria {
  /** Id of a group: only dead letters with this cause. */
  readonly fingerprint?: string;
  readonly origin?: "outbox" | "consumer";
  readonly consumer?: string;
  readonly type?: string;
  readonly topic?: string;
  readonly reason?: DeadLetterReason;
  readonly messageId?: string;
  readonly key?: string;
  readonly correlationId?: string;
  /** A part of the error's type or message, case-insensitive. */
  readonly text?: string;
  /** Dead-lettered at this time or later. */
  readonly since?: Date;
  /** Dead-lettered before this time. */
  readonly until?: Date;
  /** True: only open dead letters. False: only closed ones. Default: both. */
  readonly open?: boolean;
}

/** A validated filter: the names of its SQL conditions, and their parameters in order. */
export interface Conditions {
  readonly names: readonly Condition[];
  readonly params: readonly Param[];
}

const TEXTS = ["consumer", "type", "topic", "messageId", "key", "correlationId", "text"] as const;
const TIMES = ["since", "until"] as const;
const REASONS = ["exhausted", "rejected", "expired", "buried", "poison"] as const;

export const filterKeys: readonly (keyof DeadLetterCriteria)[] = [
  ...TEXTS,
  ...TIMES,
  "fingerprint",
  "origin",
  "reason",
  "open",
];

export function toConditions(where: string, filter: DeadLetterCriteria): Conditions {
  const found: (readonly [Condition, Param])[] = [];
  for (const name of TEXTS) {
    const value = filter[name];
    if (value !== undefined) found.push([name, text(`${where}: ${name}`, value, { max: 500 })]);
  }
  for (const name of TIMES) {
    const value = filter[name];
    if (value !== undefined) found.push([name, timeText(`${where}: ${name}`, value)]);
  }
  const { fingerprint, origin, reason, open } = filter;
  if (fingerprint !== undefined) found.push(["fingerprint", fingerprintText(where, fingerprint)]);
  if (origin !== undefined)
    found.push(["origin", oneOf(`${where}: origin`, origin, ["outbox", "consumer"] as const)]);
  if (reason !== undefined) found.push(["reason", oneOf(`${where}: reason`, reason, REASONS)]);
  const state = open === undefined ? [] : [flag(`${where}: open`, open) ? "open" : "closed"];
  return {
    names: [...found.map(([name]) => name), ...(state as Condition[])],
    params: found.map(([, param]) => param),
  };
}

function timeText(name: string, value: unknown): string {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString();
  throw new SagaboxError("OPTIONS_INVALID", `${name} must be a valid date.`);
}

function fingerprintText(where: string, value: string): string {
  if (typeof value === "string" && /^[0-9a-f]{12}$/.test(value)) return value;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `${where}: fingerprint must be the id of a group: 12 hexadecimal digits in lower case. List the groups to see their ids.`,
  );
}
