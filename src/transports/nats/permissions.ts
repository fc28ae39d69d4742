import { rejectUnknownKeys, text } from "../../options/index.ts";
import { streamNames, toToken } from "./topology.ts";

export interface NatsPermissionOptions {
  /** Whose permissions these are. */
  readonly service: string;
  /** publisher: sends only. worker: sends and consumes. */
  readonly role: "publisher" | "worker";
  /** As in the options of the transport. Default "dp". */
  readonly prefix?: string;
  /** As in the options of the transport; with one of its own a service cannot read the answers to others. */
  readonly inboxPrefix?: string;
}

/** What goes into the `permissions` of a user in the configuration of the server, or into an account's token. */
export interface NatsPermissions {
  readonly publish: { readonly allow: readonly string[] };
  readonly subscribe: { readonly allow: readonly string[] };
}

/** The least a service needs once the streams are there. It can neither make nor change nor empty nor delete one. */
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
    `$JS.API.CONSUMER.DELETE.${streams.messages}.*`,
  ];
  return {
    publish: { allow: [...publisher, ...own, ...consumers, ...more] },
    subscribe: { allow: [inbox, `${prefix}.hint.${service}.>`] },
  };
}
