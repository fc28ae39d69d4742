import { errorText, isSagaboxError, readVerdict } from "../errors/index.ts";

/** exhausted: no attempts left · rejected: can never succeed · expired · buried: by an operator · poison: crashes workers. */
export type DeadLetterReason = "exhausted" | "rejected" | "expired" | "buried" | "poison";

export interface FailureDescription {
  readonly errorType: string;
  readonly errorMessage: string;
  readonly stackTrace: string | null;
}

const MAX_MESSAGE_LENGTH = 2_000;
const MAX_STACK_LENGTH = 8_192;
const MAX_CAUSES = 4;

/** Describes a thrown value with error type, message (max. 2,000 bytes) and stack trace (max. 8 kB). Never throws. */
export function describeFailure(error: unknown): FailureDescription {
  try {
    return {
      errorType: removeControlCharacters(errorTypeText(error)).slice(0, 255) || "Error",
      errorMessage: truncateBytes(removeControlCharacters(errorChainText(error)), MAX_MESSAGE_LENGTH),
      stackTrace: stackText(error),
    };
  } catch {
    return { errorType: "Error", errorMessage: "The failure could not be described.", stackTrace: null };
  }
}

function errorTypeText(error: unknown): string {
  if (isSagaboxError(error)) return error.code;
  if (readVerdict(error)?.kind === "permanent") return "Permanent";
  if (!(error instanceof Error)) return `thrown ${error === null ? "null" : typeof error}`;
  // Database drivers name their errors "error"; the class name is more specific.
  return /^error$/i.test(error.name) ? error.constructor.name : error.name;
}

function errorChainText(error: unknown): string {
  const texts = listCauses(error).map((cause) => errorText(cause));
  return texts.join(" ← ");
}

function stackText(error: unknown): string | null {
  const stacks = listCauses(error).flatMap((cause) =>
    cause instanceof Error && typeof cause.stack === "string" ? [cause.stack] : [],
  );
  return stacks.length === 0
    ? null
    : truncateBytes(removeControlCharacters(stacks.join("\ncaused by: ")), MAX_STACK_LENGTH);
}

function listCauses(error: unknown): readonly unknown[] {
  const chain = [error];
  while (chain.length < MAX_CAUSES) {
    const last = chain.at(-1);
    if (!(last instanceof Error) || last.cause === undefined || chain.includes(last.cause)) break;
    chain.push(last.cause);
  }
  return chain;
}

// Control characters can forge log lines and terminal output, and PostgreSQL cannot store NUL.
function removeControlCharacters(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "\uFFFD");
}

function truncateBytes(text: string, maxBytes: number): string {
  if (Buffer.byteLength(text) <= maxBytes) return text;
  return (
    Buffer.from(text)
      .subarray(0, maxBytes)
      .toString()
      .replace(/\uFFFD$/, "") + "…"
  );
}
