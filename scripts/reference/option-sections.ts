import { readBusSettings } from "../../src/app/bus-options.ts";
import { readAuditSettings } from "../../src/audit/index.ts";
import { readClaimCheckSettings, postgresStore } from "../../src/claim-check/index.ts";
import { readS3Settings } from "../../src/claim-check/s3/s3-options.ts";
import { readEmbeddedPostgresSettings } from "../../src/embedded/options.ts";
import { Inbox, type InboxEngine } from "../../src/inbox/index.ts";
import { consumerSettings, handlerSettings } from "../../src/inbox/options.ts";
import { readNoticeSettings } from "../../src/notify/index.ts";
import { outboxSettings } from "../../src/outbox/index.ts";
import { readPrivacySettings } from "../../src/privacy/index.ts";
import { consumerRetryPolicy, retryPolicy } from "../../src/retry/index.ts";
import { sagaSettings } from "../../src/saga/options.ts";
import { kafkaSettings } from "../../src/transports/kafka/options.ts";
import { natsSettings } from "../../src/transports/nats/options.ts";
import { postgresSettings } from "../../src/transports/postgres/options.ts";
import { rabbitSettings } from "../../src/transports/rabbitmq/options.ts";

/** A table of the reference: where its options are declared, and who reads them. */
export interface OptionSection {
  readonly table: string;
  /** What stands before the names of its options. */
  readonly path: string;
  /** What the parser calls it, where that differs. */
  readonly checkedAs?: string;
  readonly interfaces: readonly {
    readonly file: string;
    readonly name: string;
    /** Options of an option: "breaker." */
    readonly below?: string;
    /** They have tables of their own. */
    readonly without?: readonly string[];
  }[];
  /** Reads the options of somebody who says nothing that can be left out. */
  readonly read: () => unknown;
  /** The same with what has no default, so that its bounds are seen. */
  readonly sample?: () => unknown;
  /** Bounds that follow from other options, in words. */
  readonly follows?: Readonly<Record<string, string>>;
  /** Options that have to be given to read at all, though the environment may give them. */
  readonly given?: readonly string[];
}

const days = 86_400_000;
const others = { archiveMs: 30 * days, deadLetterMs: 14 * days, inboxMs: 32 * days };
const home = { service: "shop", database: "postgres://localhost/shop" };
const consumer = 'consumer "c"';
const consumerRead = (more: object): unknown => [
  handlerSettings({ consumer: "c", batch: {}, ...more }),
  consumerSettings("c", more),
];

export const optionSections: readonly OptionSection[] = [
  {
    table: "createBus",
    path: "",
    interfaces: [
      {
        file: "src/app/bus-options.ts",
        name: "BusOptions",
        without: ["outbox", "inbox", "sagas", "audit", "privacy", "notify", "claimCheck"],
      },
    ],
    read: () => readBusSettings(home, {}),
    sample: () => readBusSettings({ ...home, maxPayloadBytes: 1 }, {}),
  },
  {
    table: "log",
    path: "log",
    interfaces: [{ file: "src/app/log-options.ts", name: "LogOptions" }],
    read: () => readBusSettings({ ...home, log: {} }, {}),
  },
  {
    table: "openTelemetry",
    path: "openTelemetry",
    interfaces: [{ file: "src/telemetry/opentelemetry/index.ts", name: "OpenTelemetryOptions" }],
    read: () => undefined,
  },
  {
    table: "outbox",
    path: "outbox",
    interfaces: [
      {
        file: "src/outbox/options.ts",
        name: "OutboxOptions",
        without: ["overflow", "breaker", "brokerDepth"],
      },
      { file: "src/outbox/options.ts", name: "OverflowOptions", below: "overflow." },
      { file: "src/outbox/options.ts", name: "BreakerOptions", below: "breaker." },
      { file: "src/outbox/options.ts", name: "BrokerDepthOptions", below: "brokerDepth." },
    ],
    read: () => outboxSettings(),
    sample: () => outboxSettings({ overflow: { maxPending: 1 }, brokerDepth: { limit: 10 } }),
    follows: { "breaker.maxCooldown": "`breaker.cooldown` – 1 h", "brokerDepth.resumeAt": "below the limit" },
  },
  {
    table: "inbox",
    path: "inbox",
    interfaces: [{ file: "src/inbox/inbox.ts", name: "InboxOptions" }],
    read: () => new Inbox({} as InboxEngine),
  },
  {
    table: "on",
    path: "on",
    checkedAs: consumer,
    interfaces: [
      { file: "src/inbox/options.ts", name: "HandlerOptions", without: ["batch", "retry"] },
      { file: "src/inbox/options.ts", name: "BatchOptions", below: "batch." },
      { file: "src/inbox/options.ts", name: "ConsumerOptions" },
    ],
    read: () => consumerRead({}),
    sample: () => consumerRead({ prefetch: 1, unknown: "ignore" }),
  },
  {
    table: "retry",
    path: "retry",
    interfaces: [{ file: "src/retry/retry-policy.ts", name: "RetryOptions" }],
    read: () => retryPolicy("retry", {}, consumerRetryPolicy),
  },
  {
    table: "sagas",
    path: "sagas",
    interfaces: [{ file: "src/saga/options.ts", name: "SagaBusOptions" }],
    read: () => sagaSettings(),
  },
  {
    table: "claimCheck",
    path: "claimCheck",
    interfaces: [{ file: "src/claim-check/options.ts", name: "ClaimCheckOptions" }],
    read: () => readClaimCheckSettings({ store: postgresStore() }, true, others),
    follows: { retention: "at least the longest of archive, dead letters and inbox, and a day" },
  },
  {
    table: "s3Store",
    path: "s3Store",
    interfaces: [{ file: "src/claim-check/s3/s3-options.ts", name: "S3StoreOptions" }],
    read: () => readS3Settings({ bucket: "payloads" }),
    given: ["forcePathStyle"],
  },
  {
    table: "privacy",
    path: "privacy",
    interfaces: [{ file: "src/privacy/options.ts", name: "PrivacyOptions" }],
    read: () => readPrivacySettings(),
  },
  {
    table: "audit",
    path: "audit",
    interfaces: [{ file: "src/audit/entry.ts", name: "AuditOptions" }],
    read: () => readAuditSettings(),
  },
  {
    table: "notify",
    path: "notify",
    interfaces: [{ file: "src/notify/options.ts", name: "WebhookOptions", below: "webhook." }],
    read: () => readNoticeSettings(undefined, { webhook: { url: "https://example.com" } }),
    sample: () =>
      readNoticeSettings(undefined, { webhook: { url: "https://example.com", secret: "sixteen letters!" } }),
  },
  {
    table: "postgres",
    path: "postgres",
    interfaces: [{ file: "src/transports/postgres/options.ts", name: "PostgresTransportOptions" }],
    read: () => postgresSettings(),
  },
  {
    table: "rabbitmq",
    path: "rabbitmq",
    interfaces: [{ file: "src/transports/rabbitmq/options.ts", name: "RabbitMQOptions" }],
    read: () => rabbitSettings({ url: "amqp://localhost" }),
    sample: () => rabbitSettings({ url: "amqp://localhost", maxLength: 1 }),
    given: ["url"],
  },
  {
    table: "kafka",
    path: "kafka",
    interfaces: [
      { file: "src/transports/kafka/options.ts", name: "KafkaOptions", without: ["topics"] },
      { file: "src/transports/kafka/options.ts", name: "TopicOptions", below: "topics." },
    ],
    read: () => kafkaSettings({ brokers: ["localhost:9092"] }),
    sample: () =>
      kafkaSettings({
        brokers: ["localhost:9092"],
        topics: { replication: 1, minInSync: 1, retention: "1d" },
      }),
  },
  {
    table: "nats",
    path: "nats",
    interfaces: [{ file: "src/transports/nats/options.ts", name: "NatsOptions" }],
    read: () => natsSettings(),
  },
  {
    table: "embedded",
    path: "embedded",
    interfaces: [{ file: "src/embedded/options.ts", name: "EmbeddedPostgresOptions" }],
    read: () => readEmbeddedPostgresSettings({ dataDir: "data" }),
    sample: () =>
      readEmbeddedPostgresSettings({ dataDir: "data", port: 1, password: "x", programs: "native" }),
  },
];
