import { errorText, isSagaboxError, verdictOf } from "../errors/index.ts";

/** exhausted: no attempts left · rejected: can never succeed · expired · buried by a person · poison: kills processes. */
export type DeadLetterReason = "exhausted" | "rejected" | "expired" | "buried" | "poison";

export interface FailureDescription {
  readonly errorType: string;
  readonly errorMessage: string;
  readonly stackTrace: string | null;
}

const mostMessage = 2_000;
const mostStack = 8_192;
const mostCauses = 4;

/** A thrown value as three short texts. Whatever was thrown, this neither throws nor grows without bound. */
export function describeFailure(error: unknown): FailureDescription {
  try {
    return {
      errorType: clean(typeOf(error)).slice(0, 255) || "Error",
      errorMessage: cut(clean(messagesOf(error)), mostMessage),
      stackTrace: stackOf(error),
    };
  } catch {
    return { errorType: "Error", errorMessage: "The failure could not be described.", stackTrace: null };
  }
}

function typeOf(error: unknown): string {
  if (isSagaboxError(error)) return error.code;
  if (verdictOf(error)?.kind === "permanent") return "Permanent";
  if (!(error instanceof Error)) return `thrown ${error === null ? "null" : typeof error}`;
  // Drivers call theirs "error"; the class then says more.
  return /^error$/i.test(error.name) ? error.constructor.name : error.name;
}

function messagesOf(error: unknown): string {
  const texts = causes(error).map((cause) => errorText(cause));
  return texts.join(" ← ");
}

function stackOf(error: unknown): string | null {
  const stacks = causes(error).flatMap((cause) =>
    cause instanceof Error && typeof cause.stack === "string" ? [cause.stack] : [],
  );
  return stacks.length === 0 ? null : cut(clean(stacks.join("\ncaused by: ")), mostStack);
}

function causes(error: unknown): readonly unknown[] {
  const chain = [error];
  while (chain.length < mostCauses) {
    const last = chain.at(-1);
    if (!(last instanceof Error) || last.cause === undefined || chain.includes(last.cause)) break;
    chain.push(last.cause);
  }
  return chain;
}

// Control characters forge log lines and terminals, and PostgreSQL stores no NUL.
function clean(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "\uFFFD");
}

function cut(text: string, most: number): string {
  if (Buffer.byteLength(text) <= most) return text;
  return (
    Buffer.from(text)
      .subarray(0, most)
      .toString()
      .replace(/\uFFFD$/, "") + "…"
  );
}
