import { expect, onTestFinished, test } from "vitest";
import { outgoing, relays, until } from "../../../test/support/relays.ts";
import { Destinations } from "../destinations.ts";
import { outboxSettings } from "../options.ts";
import { DepthWatch } from "./depth-watch.ts";

test("A16, P-04: a full broker queue pauses only its topic, without counting attempts, until it is drained", async () => {
  const harness = await relays();
  const { transport, observer } = harness;
  const settings = outboxSettings({ brokerDepth: { limit: 200, resumeAt: 50, every: 10 } });
  const destinations = new Destinations({ breaker: settings.breaker, observer });
  let taken = 0;
  const waiting = (): number => transport.published.filter(({ topic }) => topic === "slow").length - taken;
  transport.depths = () =>
    Promise.resolve(
      new Map([
        ["slow", waiting()],
        ["quick", 0],
      ]),
    );
  const limits = settings.brokerDepth;
  if (limits === null) throw new Error("a limit was given");
  const watch = new DepthWatch({ transport, destinations, limits, consumed: () => [], observer });
  onTestFinished(() => watch.stop());
  await watch.start();
  await harness.relay({ destinations, batchSize: 100 }).start();
  const { send } = harness.optimistic({ destinations });
  const write = (topic: string, from: number, count: number) =>
    harness.publish(
      ...Array.from({ length: count }, (_, n) =>
        outgoing({ id: `${topic}-${from + n}`, topic, key: `${topic}-${n % 20}` }),
      ),
    );

  await write("slow", 0, 250);
  await observer.until("destination.paused");
  await write("slow", 250, 2_000);
  await send(outgoing({ id: "eager", topic: "slow" }));
  await write("quick", 0, 1_000);
  await until(() => transport.published.filter(({ topic }) => topic === "quick").length === 1_000);
  expect(waiting()).toBeLessThanOrEqual(250);
  expect(transport.ids).not.toContain("eager");
  expect(await harness.rows("select max(attempts)::int as attempts from sagabox.outbox")).toEqual([
    { attempts: 0 },
  ]);

  const consumed = setInterval(
    () => (taken = transport.published.filter((one) => one.topic === "slow").length),
    20,
  );
  onTestFinished(() => clearInterval(consumed));
  await harness.drained();
  expect(new Set(transport.ids).size).toBe(3_251);
  expect(transport.ids).toHaveLength(3_251);
  expect(observer.of("destination.resumed").length).toBeGreaterThanOrEqual(1);
});
