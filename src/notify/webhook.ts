import { createHmac } from "node:crypto";
import { systemClock } from "../runtime/index.ts";
import type { DeadLetterNotice } from "./dead-letter-notice.ts";
import { PermanentNoticeError } from "./notice-queue.ts";
import type { WebhookSettings } from "./options.ts";

/** What is posted. The error's text stays at home: it may quote what the message carried. */
export function noticeBody(notice: DeadLetterNotice, missed: number): string {
  return JSON.stringify({
    event: "dead_letter",
    service: notice.service,
    origin: notice.origin,
    consumer: notice.consumer,
    message_id: notice.messageId,
    message_type: notice.type,
    topic: notice.topic,
    reason: notice.reason,
    trace_id: notice.traceId,
    at: notice.at,
    missed,
  });
}

/** `t` in seconds and the HMAC-SHA256 of `t`, a dot and the body: a receiver can refuse what is forged or old. */
export function signBody(secret: string, body: string, seconds: number): string {
  const digest = createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex");
  return `t=${seconds},v1=${digest}`;
}

/** One attempt. Redirects are not followed: headers and signature are meant for this address alone. */
export async function postNotice(
  { url, headers, secret }: WebhookSettings,
  body: string,
  signal: AbortSignal,
): Promise<void> {
  const seconds = Math.floor(systemClock.wallMs() / 1_000);
  const signature = secret === null ? {} : { "sagabox-signature": signBody(secret, body, seconds) };
  const response = await fetch(url, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json", ...signature },
    body,
    redirect: "manual",
    signal,
  }).catch((error: unknown) => {
    throw new Error(`the address could not be reached: ${describeCause(error)}`);
  });
  await response.body?.cancel();
  if (response.ok) return;
  const text = `it answered ${response.status}`;
  throw isRetryable(response.status) ? new Error(text) : new PermanentNoticeError(text);
}

function isRetryable(status: number): boolean {
  return status >= 500 || status === 408 || status === 425 || status === 429;
}

// Only the code: what the runtime writes beside it may hold the address.
function describeCause(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const { code } = cause as { code?: unknown };
  if (typeof code === "string") return code;
  return cause instanceof Error ? cause.name : "unknown failure";
}
