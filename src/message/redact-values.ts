// Some schema libraries quote the rejected value in their message, and messages end in logs and dead letters.
const quotedByValibot = /\s*,? but received [^]*$/;
const quotedByArktype = /\s*\(was [^]*\)$/;
const MAX_LEAVES = 1_000;

/** The message of a schema library without the value it complains about. */
export function redactValues(message: string, rejected: unknown): string {
  const kept = message.replace(quotedByValibot, "").replace(quotedByArktype, "").slice(0, 300);
  return quotesValue(kept, rejected) ? "is not acceptable" : kept;
}

// Messages written by users or by other libraries may quote too, in any form; then nothing of them is kept. A value
// too large to be looked through counts as quoted.
function quotesValue(message: string, rejected: unknown): boolean {
  const left: unknown[] = [rejected];
  for (let seen = 0; left.length > 0 && seen < MAX_LEAVES; seen++) {
    const value = left.pop();
    if (typeof value === "object" && value !== null) left.push(...Object.values(value).slice(0, MAX_LEAVES));
    else if (isQuoted(message, value)) return true;
  }
  return left.length > 0;
}

// Values of one or two characters occur in every sentence and tell nothing.
function isQuoted(message: string, value: unknown): boolean {
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "bigint") return false;
  const text = String(value);
  return text.length > 2 && message.includes(text);
}
