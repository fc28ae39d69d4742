interface FailedStep {
  readonly error?: string | null | undefined;
  readonly undo?: { readonly status: string; readonly error?: string | null | undefined } | null | undefined;
}

/** What failed for good, for people: a step, or its undo. */
export function stepFailureText(place: string, { error, undo }: FailedStep): string {
  const [what, why] =
    undo?.status === "failed" ? [`the undo of ${place}`, undo.error] : [`step ${place}`, error];
  return `${what} failed for good: ${why ?? "unknown"}`;
}
