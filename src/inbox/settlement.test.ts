import { expect, test } from "vitest";
import type { Delivery } from "../transport/index.ts";
import { aMessage } from "../../test/support/messages.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import type { InboxEngine } from "./engine.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";
import { Settlement } from "./settlement.ts";

test("a batch is acknowledged together: failed acknowledgements are retried, the others run once", async () => {
  const observer = new RecordingObserver();
  const asked: string[] = [];
  const lost = new AbortController();
  lost.abort();
  const onceInVain = (id: string, fail: () => Promise<void>) => (): Promise<void> => {
    asked.push(id);
    return asked.filter((one) => one === id).length === 1 ? fail() : Promise.resolve();
  };
  const away = new Error("the broker is away");
  const all = [
    held(
      "good",
      onceInVain("good", () => Promise.resolve()),
    ),
    held(
      "rejecting",
      onceInVain("rejecting", () => Promise.reject(away)),
    ),
    held(
      "throwing",
      onceInVain("throwing", () => {
        throw away;
      }),
    ),
    held(
      "lost",
      onceInVain("lost", () => Promise.reject(away)),
      lost.signal,
    ),
    held(
      "last",
      onceInVain("last", () => Promise.resolve()),
    ),
  ];
  expect(await settlement(observer).ackAll(all)).toEqual(["done", "done", "done", "lost", "done"]);
  expect(asked.sort()).toEqual(["good", "last", "rejecting", "rejecting", "throwing", "throwing"]);
  expect(observer.of("storage.failed")).toHaveLength(2);
});

test("a stopped consumer acknowledges nothing", async () => {
  const givenUp = new AbortController();
  givenUp.abort();
  const ack = (): Promise<void> => Promise.reject(new Error("must not be asked"));
  const results = await settlement(new RecordingObserver(), givenUp.signal).ackAll([held("a", ack)]);
  expect(results).toEqual(["lost"]);
});

function settlement(observer: RecordingObserver, givenUp = new AbortController().signal): Settlement {
  const engine = { observer } as unknown as InboxEngine;
  return new Settlement({ engine, consumer: "billing", givenUp, takeSuccessors: () => [] });
}

function held(id: string, ack: () => Promise<void>, signal = new AbortController().signal): InFlightDelivery {
  const delivery = { message: aMessage({ id }), signal, ack } as unknown as Delivery;
  return { delivery, id, registration: undefined, refers: false, arrivedMs: 0, crashes: undefined };
}
