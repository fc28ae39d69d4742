import { SagaboxError } from "../errors/index.ts";
import { isLoopback, option, readOptions, type OptionsFrom } from "../options/index.ts";
import type { DeadLetterNotice } from "./notices.ts";

export type OnDeadLetter = (notice: DeadLetterNotice) => void | Promise<void>;

export const webhookOptions = {
  /** The address that dead letters are posted to. Must be https, except on this machine. */
  url: option.value<string, URL>({ accepts: "string", required: true, check: checkUrl }),
  /** Additional request headers, such as an authorization. */
  headers: option.value<Readonly<Record<string, string>>>({
    accepts: "Record<string, string>",
    default: {},
    check: (_, headers) => checkHeaders(headers as Readonly<Record<string, string>>),
  }),
  /** Signs each body, so that the receiver can verify its origin. */
  secret: option.string({ min: 16, max: 1_024 }),
  /** The timeout of one attempt. Default "5s". */
  timeout: option.duration({ default: "5s", min: 10, max: 60_000 }),
};

export interface WebhookOptions extends OptionsFrom<typeof webhookOptions> {}

const notifyOptions = {
  /** Posts each dead letter to an address. */
  webhook: option.value<WebhookOptions, WebhookSettings>({
    accepts: "WebhookOptions",
    check: (name, value) => readWebhookSettings(name, value as WebhookOptions),
  }),
};

export interface NotifyOptions extends OptionsFrom<typeof notifyOptions> {}

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
  const { webhook = null } = readOptions("notify", notifyOptions, notify);
  return Object.freeze({ onDeadLetter: onDeadLetter ?? null, webhook });
}

function readWebhookSettings(name: string, options: WebhookOptions): WebhookSettings {
  const { secret = null, ...others } = readOptions(name, webhookOptions, options);
  return Object.freeze({ ...others, secret });
}

// Errors never repeat the address, because its path is often a secret.
function checkUrl(_: string, given: unknown): URL {
  const url = typeof given === "string" && URL.canParse(given) ? new URL(given) : null;
  if (url === null) throw invalid("notify.webhook.url must be an absolute URL.");
  if (url.username !== "" || url.password !== "") {
    throw invalid("notify.webhook.url must not hold a password. Put it into notify.webhook.headers.");
  }
  if (url.protocol === "https:" || (url.protocol === "http:" && isLoopback(url.hostname))) return url;
  throw invalid("notify.webhook.url must begin with https: http is accepted for this machine only.");
}

function checkHeaders(given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(given)) {
    if (!/^[A-Za-z0-9-]{1,100}$/.test(name) || OWN_HEADERS.includes(name.toLowerCase())) {
      throw invalid(`notify.webhook.headers: the name ${JSON.stringify(name.slice(0, 40))} cannot be used.`);
    }
    if (typeof value !== "string" || !/^[\x20-\x7e]{0,8192}$/.test(value)) {
      throw invalid(
        `notify.webhook.headers: the value of "${name}" must be a string of printable ASCII characters.`,
      );
    }
  }
  return Object.freeze({ ...given });
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
