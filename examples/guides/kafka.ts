// #region connect
import { createBus } from "sagabox";
import { kafka } from "sagabox/kafka";
import { billOrders } from "./consuming.ts";

export const bus = createBus({
  service: "billing",
  transport: kafka({ brokers: ["127.0.0.1:9092"] }),
});
billOrders(bus);
// #endregion connect

// #region cluster
import { readFile } from "node:fs/promises";

export const inProduction = kafka({
  brokers: ["kafka-1.example.com:9093", "kafka-2.example.com:9093"],
  prefix: "prod.",
  tls: true,
  sasl: {
    mechanism: "SCRAM-SHA-512",
    credentials: async () => ({
      username: "billing",
      password: (await readFile("/run/secrets/kafka-password", "utf8")).trim(),
    }),
  },
  topics: { partitions: 24, retention: "14d" },
});
// #endregion cluster

// #region permissions
import { kafkaAclArguments, kafkaPermissions } from "sagabox/kafka";

export const rightsOfBilling = kafkaAclArguments(
  kafkaPermissions({ principal: "User:billing", prefix: "prod." }),
);
// #endregion permissions
