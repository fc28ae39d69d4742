import { expect, test } from "vitest";
import { ChaosRun, PERFECT, type ChaosRunOptions, type Conclusion } from "./chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

// A proof that cannot fail proves nothing. Each of these breaks the product on purpose, below its own code, and asks
// whether the harness notices.

async function runToConclusion(options: Partial<ChaosRunOptions>): Promise<Conclusion> {
  const { url } = await temporaryDatabase();
  const size = { messages: 300, keys: 10, leaseMs: 10_000, optimisticTimeoutMs: 10_000 };
  const run = await ChaosRun.begin({ mode: "hop", url, ...size, ...options });
  await run.fleet.startWorkers(1);
  run.startLoad(1);
  return run.conclude(5_000);
}

const broken = ({ outcome }: Conclusion): string[] =>
  outcome.violations.map(({ invariant }) => invariant.split(" ")[0] ?? "");

test("a broker that delivers everything twice changes no effect", async () => {
  const { outcome } = await runToConclusion({ mode: "broker", brokerCopies: 2 });
  expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
});

test("without the inbox's key, the duplicates of the broker show in the effects", async () => {
  const sabotage = "alter table sagabox.consumer_inbox drop constraint consumer_inbox_pkey";
  expect(broken(await runToConclusion({ mode: "broker", brokerCopies: 2, sabotage }))).toContain("I-03");
});

test("messages that vanish from the outbox are found missing, and the worker that took them is named", async () => {
  const sabotage = `
    create function vanish() returns trigger language plpgsql as $$
    begin
      delete from sagabox.outbox where lane = new.lane and seq = new.seq and seq % 20 = 0;
      return null;
    end $$;
    create trigger vanish after insert on sagabox.outbox for each row execute function vanish()`;
  const conclusion = await runToConclusion({ sabotage });
  expect(conclusion.outcome.done).toBe(false);
  expect(broken(conclusion)).toEqual(expect.arrayContaining(["I-01", "I-03", "I-10"]));
  expect(conclusion.outcome.accounting.join("\n")).toContain("message_lost");
});

test("deliveries numbered out of order are found, on the wire and in the effects", async () => {
  const sabotage = `
    create function shuffle() returns trigger language plpgsql as $$
    begin
      new.seq := 1000000 + (random() * 1000000000)::bigint;
      return new;
    end $$;
    create trigger shuffle before insert on sagabox.queue for each row execute function shuffle()`;
  expect(broken(await runToConclusion({ sabotage }))).toEqual(expect.arrayContaining(["I-05", "I-06"]));
});
