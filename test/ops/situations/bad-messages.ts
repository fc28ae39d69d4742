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
    throw permanent("no one is at home");
  });
const supplement = saga("supplement", {
  version: 1,
  input: z.object({ id: z.string() }),
  key: ({ id }) => id,
})
  .tx("add", () => 1)
  .noUndo("it is never run");
/** A service whose broker is full and rejects some messages, whose saga fails past its pivot, and whose webhook is unreachable. */
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
  const { port } = await bus.run({ port: 0 });
  // Only this one knows the supplement, and it does not run.
  const elsewhere = createBus({ service: "press", database: database.url, transport, log: false });
  elsewhere.register(supplement);
  const ofNobody = "where saga_type = 'supplement'";
  let n = 0;
  const load = new Load(100, () => bus.transaction((tx) => tx.publish(Printed, { n: ++n })));
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
      "ConsumerBehind",
      "SagaFailed",
      "SagasStuck",
    ],
    targets: { press: local(port) },
    cause: async () => {
      transport.opinions.set(Torn.name, "rejected").set(Banned.name, "refused");
      transport.waiting.set("events.page.printed", 20_000);
      await publish(Torn, 10);
      await publish(Banned, 15);
      await bus.transaction((tx) => bus.start(tx, edition, { id: "e1" }));
      await bus.transaction((tx) => elsewhere.start(tx, supplement, { id: "s1" }));
      // Ten minutes in which no worker has taken it.
      await database.pool.query(
        `update sagabox.saga_instance set due_at = due_at - interval '11 minutes' ${ofNobody}`,
      );
    },
    repair: async () => {
      transport.opinions.clear();
      transport.waiting.clear();
      const by = { actor: "operator", reason: "repaired" };
      for (const { id } of await bus.deadLetters.list()) await bus.deadLetters.discard(id, by);
      await database.pool.query(`update sagabox.saga_instance set due_at = 'infinity' ${ofNobody}`);
      for (const { sagaId } of await bus.sagas.incidents())
        await bus.sagas.skip(sagaId, { ...by, step: "deliver" });
    },
    end: async () => {
      await load.stop();
      await bus.stop();
      await elsewhere.stop();
      await database.drop();
    },
  };
}
