import { SagaboxError } from "../errors/index.ts";
import { isLoopback, milliseconds, rejectUnknownKeys, text, type Duration } from "../options/index.ts";
import type { DeadLetterNotice } from "./dead-letter-notice.ts";

export type OnDeadLetter = (notice: DeadLetterNotice) => void | Promise<void>;

export interface WebhookOptions {
  /** The address that dead letters are posted to. Must be https, except on this machine. */
  readonly url: string;
  /** Additional request headers, such as an authorization. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Signs each body, so that the receiver can verify its origin. At least 16 characters. */
  readonly secret?: string;
  /** The timeout of one attempt. Default "5s". */
  readonly timeout?: Duration | number;
}

export interface NotifyOptions {
  readonly webhook?: WebhookOptions;
}

export interface WebhookSettings {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly secret: string | null;
  readonly timeoutMs: number;
}

export interface NoticeSettings {
  readonly onDeadLetter: OnDeadLetter | null;
  readonly webhook: WebhookSettings | null;
}

const OWN_HEADERS = ["content-type", "content-length", "host", "sagabox-signature"];

export function readNoticeSettings(onDeadLetter?: OnDeadLetter, notify: NotifyOptions = {}): NoticeSettings {
  if (onDeadLetter !== undefined && typeof onDeadLetter !== "function") {
    throw invalid("onDeadLetter must be a function.");
  }
  rejectUnknownKeys("notify", notify, ["webhook"]);
  return Object.freeze({
    onDeadLetter: onDeadLetter ?? null,
    webhook: notify.webhook === undefined ? null : readWebhookSettings(notify.webhook),
  });
}

function readWebhookSettings(options: WebhookOptions): WebhookSettings {
  rejectUnknownKeys("notify.webhook", options, ["url", "headers", "secret", "timeout"]);
  return Object.freeze({
    url: checkUrl(options.url),
    headers: checkHeaders(options.headers ?? {}),
    secret:
      options.secret === undefined
        ? null
        : text("notify.webhook.secret", options.secret, { min: 16, max: 1_024 }),
    timeoutMs: milliseconds("notify.webhook.timeout", options.timeout ?? "5s", { min: 10, max: 60_000 }),
  });
}

// Errors never repeat the address, because its path is often a secret.
function checkUrl(given: unknown): URL {
  const url = typeof given === "string" && URL.canParse(given) ? new URL(given) : null;
  if (url === null) throw invalid("notify.webhook.url must be an absolute URL.");
  if (url.username !== "" || url.password !== "") {
    throw invalid("notify.webhook.url must not hold a password. Put it into notify.webhook.headers.");
  }
  if (url.protocol === "https:" || (url.protocol === "http:" && isLoopback(url.hostname))) return url;
  throw invalid(
    "notify.webhook.url must begin with https: only this machine may be told without encryption.",
  );
}

function checkHeaders(given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(given)) {
    if (!/^[A-Za-z0-9-]{1,100}$/.test(name) || OWN_HEADERS.includes(name.toLowerCase())) {
      throw invalid(`notify.webhook.headers: the name ${JSON.stringify(name.slice(0, 40))} cannot be used.`);
    }
    if (typeof value !== "string" || !/^[\x20-\x7e]{0,8192}$/.test(value)) {
      throw invalid(`notify.webhook.headers: the value of "${name}" must be a text of plain characters.`);
    }
  }
  return Object.freeze({ ...given });
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
