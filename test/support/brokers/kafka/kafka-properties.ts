export interface KafkaPorts {
  readonly plain: number;
  readonly controller: number;
  readonly tls: number;
  readonly sasl: number;
  readonly saslTls: number;
}

/** One node's part in a cluster of brokers that are their own controllers. */
export interface KafkaQuorum {
  /** The id of the cluster, the same for all nodes. */
  readonly cluster: string;
  /** Counts from 1. */
  readonly node: number;
  /** The controller ports of all nodes, in their order. */
  readonly controllers: readonly number[];
}

export interface KafkaTestOptions {
  /** Default: a cluster of one. */
  readonly quorum?: KafkaQuorum;
  /** The largest heap of the process in MB. Default 512. */
  readonly heapMb?: number;
  /** Clients are told this port instead of the broker's own: that of a proxy in front of it. */
  readonly advertisedPort?: number;
  /** Listeners with TLS. */
  readonly tls?: { readonly keystore: string; readonly password: string };
  /** Listeners that ask who is there: each name may log in with PLAIN and with SCRAM. */
  readonly users?: Readonly<Record<string, string>>;
  /** Checks rights; these users may do everything, as may whoever comes without a name. */
  readonly superUsers?: readonly string[];
  readonly settings?: Readonly<Record<string, string>>;
}

/** The server.properties of a broker that is its own controller, small and quick to change its mind. */
export function kafkaProperties(ports: KafkaPorts, folder: string, options: KafkaTestOptions): string {
  const { node = 1, controllers = [ports.controller] } = options.quorum ?? {};
  const copies = String(controllers.length);
  const minInSync = controllers.length >= 3 ? "2" : "1";
  const settings: Record<string, string> = {
    "process.roles": "broker,controller",
    "node.id": String(node),
    "controller.quorum.voters": controllers.map((port, n) => `${n + 1}@127.0.0.1:${port}`).join(","),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": folder,
    "auto.create.topics.enable": "false",
    "num.partitions": "4",
    "default.replication.factor": copies,
    "min.insync.replicas": minInSync,
    "offsets.topic.replication.factor": copies,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": copies,
    "transaction.state.log.min.isr": minInSync,
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": copies,
    "share.coordinator.state.topic.min.isr": minInSync,
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    // A broker that was killed comes back in a second instead of ten.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    // Three brokers on a busy machine answer each other late; with times this short they would elect for ever.
    ...(controllers.length > 1 && {
      "broker.session.timeout.ms": "9000",
      "controller.quorum.election.timeout.ms": "2000",
      "controller.quorum.fetch.timeout.ms": "4000",
    }),
    ...listeners(ports, options),
    ...security(options),
    ...options.settings,
  };
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join("");
}

function listeners(ports: KafkaPorts, { advertisedPort, tls, users }: KafkaTestOptions) {
  const open: [name: string, protocol: string, port: number][] = [["PLAINTEXT", "PLAINTEXT", ports.plain]];
  if (tls !== undefined) open.push(["TLS", "SSL", ports.tls]);
  if (users !== undefined) open.push(["SASL", "SASL_PLAINTEXT", ports.sasl]);
  if (users !== undefined && tls !== undefined) open.push(["SASLTLS", "SASL_SSL", ports.saslTls]);
  const address = ([name, , port]: (typeof open)[number]): string => `${name}://127.0.0.1:${port}`;
  const own = open.map(address).join(",");
  const told = open.map(([name, protocol, port]) =>
    address([name, protocol, name === "PLAINTEXT" ? (advertisedPort ?? port) : port]),
  );
  return {
    listeners: `${own},CONTROLLER://127.0.0.1:${ports.controller}`,
    "advertised.listeners": told.join(","),
    "listener.security.protocol.map": `CONTROLLER:PLAINTEXT,${open.map(([name, protocol]) => `${name}:${protocol}`).join(",")}`,
  };
}

function security({ tls, users, superUsers }: KafkaTestOptions): Record<string, string> {
  const settings: Record<string, string> = {};
  if (tls !== undefined) {
    settings["ssl.keystore.type"] = "PKCS12";
    settings["ssl.keystore.location"] = tls.keystore;
    settings["ssl.keystore.password"] = tls.password;
  }
  if (users !== undefined) {
    const known = Object.entries(users).map(([name, password]) => `user_${name}="${password}"`);
    settings["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512";
    for (const listener of tls === undefined ? ["sasl"] : ["sasl", "sasltls"]) {
      const login = `listener.name.${listener}`;
      const module = "org.apache.kafka.common.security";
      settings[`${login}.plain.sasl.jaas.config`] =
        `${module}.plain.PlainLoginModule required ${known.join(" ")};`;
      for (const mechanism of ["scram-sha-256", "scram-sha-512"])
        settings[`${login}.${mechanism}.sasl.jaas.config`] = `${module}.scram.ScramLoginModule required;`;
    }
  }
  if (superUsers !== undefined) {
    settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    settings["super.users"] = ["ANONYMOUS", ...superUsers].map((name) => `User:${name}`).join(";");
  }
  return settings;
}
