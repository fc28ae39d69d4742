import { onTestFinished } from "vitest";

/** Most of the time of a hundred thousand refusals goes into where each was thrown, which nobody reads. */
export function withoutStacks(): void {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  onTestFinished(() => void (Error.stackTraceLimit = stackTraceLimit));
}
