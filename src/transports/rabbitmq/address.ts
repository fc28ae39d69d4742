import { SagaboxError } from "../../errors/index.ts";
import { isLoopback, text } from "../../options/index.ts";

export interface BrokerAddress {
  readonly secure: boolean;
  readonly hostname: string;
  readonly port: number;
  readonly vhost: string;
  readonly credentials: { readonly username: string; readonly password: string } | undefined;
}

interface AddressRules {
  readonly vhost: string | undefined;
  readonly allowInsecure: boolean;
}

/** Addresses are never repeated in an error: they may hold a password. */
export function parseAddresses(
  url: string | readonly string[] | undefined,
  rules: AddressRules,
): readonly BrokerAddress[] {
  if (url === undefined) {
    throw invalidAddress(
      'rabbitmq needs an address: rabbitmq({ url: "amqps://…" }), or SAGABOX_RABBITMQ_URL.',
    );
  }
  const urls: readonly unknown[] = Array.isArray(url) ? url : [url];
  if (urls.length === 0) throw invalidAddress("rabbitmq.url must name at least one broker.");
  return Object.freeze(urls.map((one) => parseAddress(one, rules)));
}

function parseAddress(written: unknown, rules: AddressRules): BrokerAddress {
  const url = parseUrl(text("rabbitmq.url", written, { max: 2_048 }));
  const hostname = url.hostname.replaceAll(/^\[|\]$/g, "");
  const secure = url.protocol === "amqps:";
  if (!secure && !isLoopback(hostname) && !rules.allowInsecure) {
    throw invalidAddress(
      `rabbitmq.url leads to another machine without encryption. Use amqps://, or set allowInsecure: true.`,
    );
  }
  if (url.search !== "")
    throw invalidAddress("rabbitmq.url must not have parameters; they are options here.");
  const vhost = rules.vhost ?? (url.pathname.length > 1 ? decodeURIComponent(url.pathname.slice(1)) : "/");
  return Object.freeze({
    secure,
    hostname,
    port: url.port === "" ? (secure ? 5671 : 5672) : Number(url.port),
    vhost: text("rabbitmq.vhost", vhost),
    credentials:
      url.username === ""
        ? undefined
        : { username: decodeURIComponent(url.username), password: decodeURIComponent(url.password) },
  });
}

function parseUrl(written: string): URL {
  const url = URL.canParse(written) ? new URL(written) : undefined;
  if (url !== undefined && (url.protocol === "amqp:" || url.protocol === "amqps:") && url.hostname !== "") {
    return url;
  }
  throw invalidAddress("rabbitmq.url must look like amqps://user:password@host:5671/vhost.");
}

function invalidAddress(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
