import { EventEmitter } from "node:events";
import pg from "pg";
import { createBus, permanent, type Bus } from "sagabox";
import { runCli } from "../../src/cli/index.ts";
import { InvoiceTable, OrderPlaced, orders, type Order } from "./orders.ts";

export interface IncidentOptions {
  /** An empty database. */
  readonly url: string;
  /** Prints a line. */
  readonly say: (line: string) => void;
  /** Gives people time to read, if there are any. */
  readonly pause: () => Promise<void>;
}

/** A bug is deployed, dead letters pile up, an operator finds the cause, repairs it and replays, with the real tools. */
export async function runIncident(stage: IncidentOptions): Promise<void> {
  const pool = new pg.Pool({ connectionString: stage.url, max: 20 });
  pool.on("error", () => undefined);
  const invoices = new InvoiceTable(pool);
  let bus: Bus | undefined;
  const deploy = async (write: (order: Order) => string): Promise<Bus> => {
    await bus?.stop();
    bus = createBus({ service: "shop", database: pool, log: false });
    const retry = { maxAttempts: 2, firstDelay: 50 };
    bus.on(OrderPlaced, { consumer: "invoices", retry }, async ({ data }, { tx }) =>
      invoices.insert(tx, data.orderId, write(data)),
    );
    await bus.migrate();
    await bus.run();
    await until(() => isAtWork(stage.url, "invoices")); // only then is it rolled out
    return bus;
  };
  try {
    await invoices.create();
    await runSteps(stage, deploy, invoices);
  } finally {
    await bus?.stop();
    await pool.end();
  }
}

async function runSteps(
  { url, say, pause }: IncidentOptions,
  deploy: (write: (order: Order) => string) => Promise<Bus>,
  invoices: InvoiceTable,
): Promise<void> {
  const printLines = async (...lines: string[]): Promise<void> => {
    for (const line of ["", ...lines]) say(line);
    await pause();
  };
  const sagabox = async (...args: string[]): Promise<string> => {
    const shown = args.map((arg) => (/[ "]/.test(arg) ? JSON.stringify(arg) : arg));
    say(`\n$ sagabox ${shown.join(" ")}`);
    let printed = "";
    const code = await runCli(
      args,
      commandLine(url, (text) => (printed += `${text}\n`)),
    );
    for (const line of printed.trimEnd().split("\n")) say(`  ${line}`);
    if (code !== 0) say(`  (exit code ${code})`);
    await pause();
    return printed;
  };

  await printLines(
    "A shop takes orders, and its consumer `invoices` writes an invoice for each.",
    "Today a version was rolled out that reads a VAT number every order is thought to have.",
  );
  const buggy = await deploy((order) => {
    assertCurrency(order);
    return `VAT ${(order.customer as { vat: string }).vat.toUpperCase()}`;
  });
  for (const order of orders) await buggy.transaction((tx) => tx.publish(OrderPlaced, order));
  const broken = orders.filter(({ customer, currency }) => customer.vat === undefined || currency === "ZZZ");
  await until(async () => (await invoices.count()) + (await dead(buggy)) === orders.length);
  await printLines(
    `${orders.length} orders later the pager goes off: DeadLettersOpen. ${broken.length} orders have no invoice.`,
    "Nothing is lost: a message that cannot be handled is kept whole, and all others went on.",
    "What does the person on call see first?",
  );
  await sagabox("status");

  await printLines("Are these many problems or few? Dead letters are grouped by their cause.");
  await sagabox("dlq", "groups");
  const [largest] = (await buggy.deadLetters.groups()).groups;
  await printLines("Two causes. One letter of the larger one, with its error and the stack:");
  await sagabox("dlq", "show", largest?.sampleId ?? "");
  await printLines("And the whole life of its message, from the transaction that wrote it to its failure:");
  await sagabox("explain", largest?.sampleMessageId ?? "");

  await printLines(
    "Private customers have no VAT number. The fix is one line, and it is rolled out now;",
    "messages that come in from here on are handled.",
  );
  const fixed = await deploy((order) => {
    assertCurrency(order);
    return order.customer.vat === undefined ? "no VAT" : `VAT ${order.customer.vat.toUpperCase()}`;
  });
  await printLines(
    "Replay everything, but carefully: of each cause three letters go first, and only when those were",
    "handled, the rest. A cause whose failure comes back is stopped, and the others continue.",
  );
  await sagabox(
    "dlq",
    "replay",
    "--all",
    "--canary",
    "3",
    "--rate",
    "200",
    "--reason",
    "fixed in 1.0.1",
    "--yes",
  );
  await printLines(
    "The bug is gone. The other cause was something else, and it was stopped after its first letters:",
  );
  await sagabox("dlq", "groups");
  await printLines(
    "A currency that does not exist: these orders came from a test. They are discarded, with a reason.",
  );
  const [rest] = (await fixed.deadLetters.groups()).groups;
  await sagabox(
    "dlq",
    "discard",
    "--group",
    rest?.fingerprint ?? "",
    "--reason",
    "orders of a test, ticket 42",
    "--yes",
  );

  await printLines("Is all well? `status --check` and `verify` end with 0 only if it is.");
  await sagabox("status", "--check");
  await sagabox("verify");
  await printLines(
    "It counts what the outbox sent, the orders of the test too: they were sent, and died later, at a consumer.",
  );
  await printLines("And who did what, for the report tomorrow:");
  await sagabox("audit", "list", "--limit", "5");
  const real = orders.filter(({ currency }) => currency !== "ZZZ").length;
  await printLines(
    `${await invoices.count()} invoices for ${real} orders, ${await invoices.doubles()} of them written twice.`,
    "The runbook of this incident is docs/runbooks/replay.md.",
  );
}

function assertCurrency({ currency }: Order): void {
  if (currency === "ZZZ") throw permanent("There is no currency ZZZ.");
}

async function dead(bus: Bus): Promise<number> {
  return (await bus.deadLetters.groups()).open;
}

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 50));
}

async function isAtWork(url: string, consumer: string): Promise<boolean> {
  let printed = "";
  await runCli(
    ["status", "--json"],
    commandLine(url, (text) => (printed += text)),
  );
  const { consumers } = JSON.parse(printed) as {
    readonly consumers: readonly { readonly name: string; readonly ownedLanes: number }[];
  };
  return consumers.some((one) => one.name === consumer && one.ownedLanes > 0);
}

function commandLine(url: string, print: (text: string) => void): Parameters<typeof runCli>[1] {
  return {
    env: { DATABASE_URL: url, USER: "you" },
    cwd: process.cwd(),
    signals: new EventEmitter(),
    out: print,
    err: print,
    setEnv: () => undefined,
    exit: () => undefined,
  };
}
