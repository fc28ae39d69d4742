import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import type { BusTopology } from "../app/index.ts";
import type { PlannedGroup } from "../transport/index.ts";
import { planKafkaTopology } from "../transports/kafka/kafka-transport.ts";
import { kafkaSettings } from "../transports/kafka/options.ts";
import { planNatsTopology } from "../transports/nats/nats-transport.ts";
import { natsSettings } from "../transports/nats/options.ts";

const app = fileURLToPath(new URL("../../test/support/topology-service.ts", import.meta.url));
const groups: readonly PlannedGroup[] = [
  {
    service: "shop",
    group: "mail",
    ordered: true,
    topics: [{ topic: "events.order.placed", kind: "event" }],
  },
];
const named = ({ objects }: Pick<BusTopology, "objects">) =>
  objects.map(({ kind, name }) => `${kind} ${name}`);

test("topology: what is made at RabbitMQ and the rights for it, while nobody is asked", async () => {
  const text = await cliInProcess(["topology", "--app", app], {});
  expect(text).toMatchObject({ code: 0, stderr: "" });
  expect(text.stdout).toMatch(/^Service shop over rabbitmq$/m);
  expect(text.stdout).toMatch(/^mail +events\.order\.placed +event +by key$/m);
  expect(text.stdout).toMatch(/^ {2}rabbitmqctl set_permissions <user> '\^/m);
  const seen = JSON.parse(
    (await cliInProcess(["topology", "--app", app, "--json"], {})).stdout,
  ) as BusTopology;
  expect(named(seen)).toEqual(
    expect.arrayContaining([
      "exchange dp.event.order",
      "exchange dp.command.shop",
      "exchange dp.dlx",
      expect.stringMatching(/^queue dp\.queue\..*mail.*:0$/),
      expect.stringMatching(/^queue dp\.queue\..*mail.*:1$/),
      expect.stringMatching(/^queue dp\.dlq\..*packer/),
    ]),
  );
  expect(seen.groups).toMatchObject([
    { group: "mail", ordered: true },
    { group: "packer", ordered: false },
  ]);
});

test("topology: Kafka has topics with their partitions, and groups", () => {
  const seen = planKafkaTopology(kafkaSettings({ brokers: ["127.0.0.1:1"], prefix: "shop." }), groups);
  expect(named(seen)).toEqual(
    expect.arrayContaining([
      "topic shop.events.order.placed",
      "topic shop.events.order.placed.dlq",
      "group shop.shop.mail",
    ]),
  );
  expect(seen.objects[0]?.detail).toBe("messages, 12 partitions, 3 copies");
  expect(seen.permissions[0]).toMatch(/^kafka-acls\.sh --add --allow-principal User:shop .*--topic shop\. /);
});

test("topology: NATS has its four streams, and consumers on them", () => {
  const seen = planNatsTopology(natsSettings({ servers: "nats://127.0.0.1:1" }), groups);
  expect(named(seen).slice(0, 4)).toEqual([
    "stream dp_messages",
    "stream dp_retries",
    "stream dp_dead",
    "stream dp_groups",
  ]);
  expect(named(seen)).toContain("subject dp.msg.events.order.placed.*");
  expect(seen.permissions[0]).toContain("$JS.API.CONSUMER");
});

test("topology: an application has to be given, and has to be one", async () => {
  expect(await cliInProcess(["topology"], {})).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("--app"),
  });
  expect(await cliInProcess(["topology", "--app", "nowhere.ts"], {})).toMatchObject({ code: 1 });
});
