import { createBus, saga } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";
import { Notifications, pgDatabase } from "../storage/index.ts";
import { silentObserver } from "../telemetry/index.ts";
import { SagaResults } from "./results.ts";
import { openInstance, type LoadedInstance } from "./saga-store.ts";
import { sagaStatements } from "./statements.ts";

const greeting = saga("greeting", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
  .run("greet", () => "hello")
  .noUndo("words only");

test("a process that waits asks the others, and one of them reports the end: no poll is needed", async () => {
  const { pool } = await temporaryDatabase({ max: 20, migrated: true });
  const database = pgDatabase(pool);
  const engine = {
    sql: sagaStatements('"sagabox"'),
    open: async (row: Parameters<typeof openInstance>[1]) =>
      (await openInstance(undefined, row)) as LoadedInstance,
  };
  const heard: string[] = [];
  let report: (sagaId: string, status: string) => void = () => undefined;
  const process = async (listen: ConstructorParameters<typeof SagaResults>[0]["listen"]) => {
    const channel = "results";
    const parts = { engine, database, channel, observer: silentObserver, listen, pollMs: 3_600_000 };
    const results = new SagaResults(parts);
    const hear = (payload: string): void => void (results.hear(payload) && heard.push(payload));
    const onError = () => undefined;
    const notifications = new Notifications({ database, channel, hear, onGap: () => undefined, onError });
    await notifications.start();
    onTestFinished(() => Promise.all([results.close(), notifications.stop()]).then(() => undefined));
    await until(() => notifications.listening);
    return results;
  };
  const waiting = await process(() => () => undefined);
  await process((listener) => {
    report = listener;
    return () => undefined;
  });
  const bus = createBus({ service: "greetings", database: pool, log: false });
  onTestFinished(() => bus.stop().then(() => undefined));
  bus.register(greeting);
  const start = (id: string) => bus.transaction((tx) => tx.start(greeting, { id }));
  const [first, other] = [await start("a"), await start("b")];
  const result = waiting.wait(greeting.definition, first.sagaId, { timeout: "1m" });
  const asked = `saga-asked:${first.sagaId}`;
  await until(() => heard.filter((payload) => payload === asked).length === 2);
  await bus.run();
  await until(async () => (await bus.sagas.show(first.sagaId)).status === "completed");
  report(other.sagaId, "completed"); // no process waits for this one
  report(first.sagaId, "running");
  report(first.sagaId, "completed");
  expect(await result).toEqual({ status: "completed", steps: { greet: "hello" } });
  await until(() => heard.filter((payload) => payload.startsWith("saga-ended:")).length === 2);
  const ended = `saga-ended:${first.sagaId}`;
  expect(heard).toEqual([asked, asked, ended, ended]);
});
