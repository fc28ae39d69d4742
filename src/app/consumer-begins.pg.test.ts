import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { event } from "../message/index.ts";
import { createBus } from "./create-bus.ts";

const Placed = event("order.placed", { schema: z.object({ n: z.number() }) });

test("a consumer that is new to a topic says where it begins there; one that comes again says nothing", async () => {
  const { pool } = await temporaryDatabase({ max: 20 });
  const begun = async (consumer: string, from?: "beginning") => {
    const observer = new RecordingObserver();
    const bus = createBus({ service: "shop", database: pool, log: false, observers: [observer] });
    onTestFinished(async () => void (await bus.stop()));
    bus.on(Placed, { consumer, ...(from === undefined ? {} : { from }) }, () => undefined);
    await bus.migrate();
    await bus.run();
    await bus.stop();
    return observer.of("consumer.began");
  };
  const topic = "events.order.placed";
  expect(await begun("books")).toEqual([{ consumer: "books", topic, from: "now" }]);
  expect(await begun("books")).toEqual([]);
  expect(await begun("all", "beginning")).toEqual([{ consumer: "all", topic, from: "beginning" }]);
});
