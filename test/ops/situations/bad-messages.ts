import { createBus, event, permanent, saga } from "sagabox";
import { z } from "zod";
import { createDatabase } from "../../support/database.ts";
import { Load } from "../support/load.ts";
import { freePort } from "../support/prometheus-server.ts";
import { TroubledBroker } from "../support/troubled-broker.ts";
import { local, type Situation } from "./situation.ts";

const one = { schema: z.object({ n: z.number() }) };
const Printed = event("page.printed", one);
const Torn = event("page.torn", one);
const Banned = event("page.banned", one);
const edition = saga("edition", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
  .tx("pay", () => 1)
  .pivot()
  .run("deliver", (): string => {
    throw permanent("nobody is at home");
  });
const proof = saga("proof", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
  .tx("read", () => 1)
  .noUndo("it only reads");

/** A press whose broker is full and dislikes some messages, whose saga fails past its pivot, and whom nobody hears. */
export async function badMessages(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const transport = new TroubledBroker();
  const bus = createBus({
    service: "press",
    database: database.url,
    transport,
    log: false,
    notify: { webhook: { url: `http://127.0.0.1:${await freePort()}/nobody` } },
    outbox: {
      retry: { maxAttempts: 1_000, firstDelay: 50, maxDelay: 100 },
      brokerDepth: { limit: 15_000, every: "250ms" },
    },
  });
  bus.on(Printed, { consumer: "archive", from: "beginning" }, () => undefined);
  bus.register(edition);
  bus.register(proof);
  const { port } = await bus.run({ port: 0 });
  let n = 0;
  const print = async (): Promise<void> =>
    bus.transaction(async (tx) => {
      await tx.publish(Printed, { n: ++n });
      if (n % 5 === 0) await bus.start(tx, proof, { id: String(n) });
    });
  const load = new Load(100, print);
  const publish = (contract: typeof Torn, count: number): Promise<unknown> =>
    bus.transaction(async (tx) => {
      for (let i = 0; i < count; i++) await tx.publish(contract, { n: ++n });
    });
  return {
    alerts: [
      "OutboxHighFailureRate",
      "OutboxDeadLetterQueue",
      "DeadLettersOpen",
      "DeadLetterNoticesFailing",
      "TransportPaused",
      "ConsumerBacklog",
      "SagaFailed",
    ],
    targets: { press: local(port) },
    cause: async () => {
      transport.opinions.set(Torn.name, "rejected").set(Banned.name, "refused");
      transport.waiting.set("events.page.printed", 20_000);
      await publish(Torn, 10);
      await publish(Banned, 15);
      await bus.transaction((tx) => bus.start(tx, edition, { id: "e1" }));
    },
    repair: async () => {
      transport.opinions.clear();
      transport.waiting.clear();
      const by = { actor: "operator", reason: "repaired" };
      for (const { id } of await bus.deadLetters.list()) await bus.deadLetters.discard(id, by);
      for (const { id } of await bus.sagas.stuck()) await bus.sagas.skip(id, { ...by, step: "deliver" });
    },
    end: async () => {
      await load.stop();
      await bus.stop();
      await database.drop();
    },
  };
}
