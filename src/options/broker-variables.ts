import type { EnvironmentVariable } from "./environment-variables.ts";
import { option } from "./option.ts";

export type BrokerName = "rabbitmq" | "kafka" | "nats";

const titles: Readonly<Record<BrokerName, string>> = { rabbitmq: "RabbitMQ", kafka: "Kafka", nats: "NATS" };

const addresses: Readonly<Record<BrokerName, { names: [string, string]; meaning: string; pattern: RegExp }>> =
  {
    rabbitmq: {
      names: ["SAGABOX_RABBITMQ_URL", "RABBITMQ_URL"],
      meaning: "Address of RabbitMQ, `amqps://user:password@host/vhost`, or several, separated by commas.",
      pattern: /^amqps?:\/\//,
    },
    kafka: {
      names: ["SAGABOX_KAFKA_BROKERS", "KAFKA_BOOTSTRAP_SERVERS"],
      meaning: "Bootstrap brokers as `host:port`, separated by commas.",
      pattern: /^[^/\s]+:\d+(,[^/\s]+:\d+)*$/,
    },
    nats: {
      names: ["SAGABOX_NATS_URL", "NATS_URL"],
      meaning: "Address of NATS, `tls://host:4222`, or several, separated by commas.",
      pattern: /^(nats|tls):\/\//,
    },
  };

function buildVariables(broker: BrokerName) {
  const title = titles[broker];
  const own = (name: string): [string] => [`SAGABOX_${broker.toUpperCase()}_${name}`];
  const { names, meaning, pattern } = addresses[broker];
  const anyText = option.string({ max: 4_096 });
  return {
    address: {
      names,
      meaning: `${meaning} For the transport \`${broker}()\`.`,
      secret: true,
      option: option.string({ max: 4_096, pattern }),
    },
    username: {
      names: own("USERNAME"),
      meaning: `User name at ${title}.`,
      secret: false,
      option: anyText,
    },
    password: {
      names: own("PASSWORD"),
      meaning: `Password at ${title}. A file is read again for each connection, so that the password can be rotated.`,
      secret: true,
      option: anyText,
    },
    ca: {
      names: own("CA"),
      meaning: `Path of a PEM file with the certificate authorities trusted for ${title}.${broker === "rabbitmq" ? " The address must begin with amqps." : " Enables TLS."}`,
      otherwise: "the authorities of Node",
      secret: false,
      option: anyText,
    },
    mechanism: {
      names: own("SASL_MECHANISM"),
      meaning: "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
      secret: false,
      option: option.choice(saslMechanisms, { default: "SCRAM-SHA-512" }),
    },
  } satisfies Record<string, EnvironmentVariable>;
}

/** The SASL mechanisms of Kafka. */
export const saslMechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] as const;

/** The formats in which a broker transport can write messages. */
export const messageFormats = ["sagabox", "cloudevents-structured", "cloudevents-binary"] as const;

/** One variable for all brokers, because every transport reads all formats. */
export const messageFormatVariable = {
  names: ["SAGABOX_MESSAGE_FORMAT"],
  meaning:
    "How messages are written to RabbitMQ, Kafka and NATS: sagabox, cloudevents-structured or cloudevents-binary. All three are always read.",
  secret: false,
  option: option.choice(messageFormats, { default: "sagabox" }),
} as const satisfies EnvironmentVariable;

export type BrokerVariables = ReturnType<typeof buildVariables>;

export const brokerVariables: Readonly<Record<BrokerName, BrokerVariables>> = {
  rabbitmq: buildVariables("rabbitmq"),
  kafka: buildVariables("kafka"),
  nats: buildVariables("nats"),
};

/** Lists every broker variable. Only Kafka has a SASL mechanism. */
export function allBrokerVariables(): readonly EnvironmentVariable[] {
  const each = Object.entries(brokerVariables).flatMap(([broker, { mechanism, ...others }]) => [
    ...Object.values<EnvironmentVariable>(others),
    ...(broker === "kafka" ? [mechanism] : []),
  ]);
  return [...each, messageFormatVariable];
}
