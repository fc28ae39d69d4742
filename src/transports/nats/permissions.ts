import { rejectUnknownKeys, text } from "../../options/index.ts";
import { streamNames, toToken } from "./topology.ts";

export interface NatsPermissionOptions {
  /** The service that gets the permissions. */
  readonly service: string;
  /** A publisher only sends; a worker sends and consumes. */
  readonly role: "publisher" | "worker";
  /** Value of the transport option `prefix`. Default "dp". */
  readonly prefix?: string;
  /**
   * Value of the transport option `inboxPrefix`. With its own prefix, a service cannot read replies to other services.
   */
  readonly inboxPrefix?: string;
}

/** Value for the `permissions` of a user in the server configuration or in an account's token. */
export interface NatsPermissions {
  readonly publish: { readonly allow: readonly string[] };
  readonly subscribe: { readonly allow: readonly string[] };
}

/**
 * Returns the minimal permissions of a service once the streams exist. They do not allow creating, changing, purging or
 * deleting a stream.
 */
export function natsPermissions(options: NatsPermissionOptions): NatsPermissions {
  rejectUnknownKeys("natsPermissions", options, ["service", "role", "prefix", "inboxPrefix"]);
  const prefix = text("natsPermissions.prefix", options.prefix ?? "dp", { pattern: /^[A-Za-z0-9_-]+$/ });
  const inbox = `${options.inboxPrefix ?? "_INBOX"}.>`;
  const streams = streamNames(prefix);
  const publisher = [
    `${prefix}.msg.>`,
    ...Object.values(streams).map((stream) => `$JS.API.STREAM.INFO.${stream}`),
    `$JS.API.CONSUMER.LIST.${streams.messages}`,
  ];
  if (options.role === "publisher") {
    return { publish: { allow: publisher }, subscribe: { allow: [inbox] } };
  }
  const service = toToken(text("natsPermissions.service", options.service));
  const own = ["retry", "dlq", "group", "hint"].map((kind) => `${prefix}.${kind}.${service}.>`);
  const consumers = [streams.messages, streams.retries].flatMap((stream) => [
    `$JS.API.CONSUMER.CREATE.${stream}.>`,
    `$JS.API.CONSUMER.DURABLE.CREATE.${stream}.*`,
    `$JS.API.CONSUMER.INFO.${stream}.*`,
    `$JS.API.CONSUMER.MSG.NEXT.${stream}.*`,
    `$JS.ACK.${stream}.>`,
  ]);
  const more = [
    `${prefix}.topic.>`,
    `$JS.API.STREAM.MSG.GET.${streams.groups}`,
    `$JS.API.STREAM.MSG.GET.${streams.messages}`, // the age of the oldest unread message
    `$JS.API.CONSUMER.DELETE.${streams.messages}.*`,
  ];
  return {
    publish: { allow: [...publisher, ...own, ...consumers, ...more] },
    subscribe: { allow: [inbox, `${prefix}.hint.${service}.>`] },
  };
}
