const PATIENCE_MS = 2_000;

/** Whether the worker beside us says that it is ready. */
export async function askHealth(
  url: string,
): Promise<{ readonly url: string; readonly status: number | null }> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS) });
    await answer.body?.cancel();
    return { url, status: answer.status };
  } catch {
    return { url, status: null };
  }
}
