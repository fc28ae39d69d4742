/** Looks until the condition holds. Never a wait for time: it returns as soon as it can, and fails when it cannot. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  options: { readonly timeoutMs?: number; readonly everyMs?: number } = {},
): Promise<void> {
  const { timeoutMs = 60_000, everyMs = 25 } = options;
  const endMs = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Error(`Not within ${timeoutMs} ms: ${what}.`);
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
