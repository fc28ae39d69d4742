const TIMEOUT_MS = 2_000;

/** Where a worker that listens on this address answers from this machine: at every address means at ours, too. */
export function healthUrl(host: string, port: number): string {
  const own = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `http://${own.includes(":") ? `[${own}]` : own}:${port}/health/ready`;
}

/** Whether the worker beside us says that it is ready. */
export async function checkHealth(
  url: string,
): Promise<{ readonly url: string; readonly status: number | null }> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    await answer.body?.cancel();
    return { url, status: answer.status };
  } catch {
    return { url, status: null };
  }
}
