import type pg from "pg";
import { command, refuse, saga, type Bus } from "sagabox";
import { z } from "zod";

const Trip = z.object({ tripId: z.string(), fate: z.string() });
type Trip = z.infer<typeof Trip>;

const order = (name: string) => command(`trip.${name}`, { schema: Trip });
const BookHotel = command("trip.hotel", { schema: Trip, reply: z.object({ room: z.string() }) });
const CancelHotel = order("hotel-cancel");
const BookCar = command("trip.car", { schema: Trip, reply: z.object({ car: z.string() }) });
const CancelCar = order("car-cancel");
const BookFlight = command("trip.flight", { schema: Trip, reply: z.object({ seat: z.string() }) });
const CancelFlight = order("flight-cancel");
const SendTickets = command("trip.tickets", { schema: Trip, reply: z.object({ sent: z.boolean() }) });

/** What becomes of a trip: most end well, others are refused or time out at one of the steps. */
export const FATES = ["good", "good", "good", "no car", "no flight", "no money", "slow car"] as const;

/** Writes down what a participant did. There is no unique constraint: only the engine keeps it from happening twice. */
export const LEDGER = `
  create table s_action (
    n bigint generated always as identity, saga text, step text, act text, worker text,
    at timestamptz default clock_timestamp());
  create index on s_action (saga, step)`;

const INSERT = "insert into s_action (saga, step, act, worker) values ($1, $2, $3, $4)";

/** A service outside that honours idempotency keys, as payment providers do. */
async function outside(pool: pg.Pool, key: string, step: string, act: string, worker: string): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query("select pg_advisory_xact_lock(hashtext($1))", [key]);
    const saga = key.slice(0, key.indexOf(":"));
    const { rows } = await client.query("select act from s_action where saga = $1 and step = $2", [
      saga,
      step,
    ]);
    const done = rows.some((row) => (row as { act: string }).act === act);
    const nothing = act === "undo" && rows.length === 0;
    if (!done && !nothing) await client.query(INSERT, [saga, step, act, worker]);
    await client.query("commit");
  } catch (error) {
    await client.query("rollback").catch(() => undefined);
    throw error;
  } finally {
    client.release();
  }
}

/**
 * The saga in two versions: one that soon gives a car up, and one that waits until its turn comes, for every step of it
 * longer than the whole proof may take, so that a trip without a fault in it has to end well.
 */
export function tripSagas(pool: pg.Pool, worker: string) {
  return {
    hasty: tripSaga(pool, worker, 1, { car: "3s", others: "30s" }),
    patient: tripSaga(pool, worker, 2, { car: "1h", others: "1h" }),
  };
}

interface Patience {
  readonly car: "3s" | "1h";
  readonly others: "30s" | "1h";
}

function tripSaga(pool: pg.Pool, worker: string, version: number, { car, others }: Patience) {
  const patience = { timeout: others };
  return saga("book-trip", { version, input: Trip, key: (trip) => trip.tripId })
    .tx("open", async (c) => {
      await c.tx.query(INSERT, [c.sagaId, "open", "do", worker]);
    })
    .undo(async (c) => {
      await c.tx.query(INSERT, [c.sagaId, "open", "undo", worker]);
    })
    .send("hotel", BookHotel, (c) => c.input, patience)
    .undo(CancelHotel, (c) => c.input)
    .run(
      "pay",
      async (c) => {
        if (c.input.fate === "no money") throw refuse("no money");
        await outside(pool, c.idempotencyKey, "pay", "do", worker);
      },
      patience,
    )
    .undo((c) => outside(pool, c.idempotencyKey, "pay", "undo", worker))
    .all("travel", (g) =>
      g
        .send("car", BookCar, (c) => c.input, { timeout: car, undo: [CancelCar, (c) => c.input] })
        .send("flight", BookFlight, (c) => c.input, { ...patience, undo: [CancelFlight, (c) => c.input] }),
    )
    .tx("confirm", async (c) => {
      await c.tx.query(INSERT, [c.sagaId, "confirm", "do", worker]);
    })
    .pivot()
    .send("tickets", SendTickets, (c) => c.input);
}

export function addParticipants(bus: Bus, worker: string): void {
  const did =
    (step: string, act: string) =>
    async (
      message: { readonly sagaId: string | null },
      { tx }: { readonly tx: { query(text: string, params: unknown[]): Promise<unknown> } },
    ): Promise<void> => {
      await tx.query(INSERT, [message.sagaId, step, act, worker]);
    };
  const hotel = { consumer: "hotel" };
  bus.on(BookHotel, hotel, async (m, c) => {
    await did("hotel", "do")(m, c);
    return { room: "1" };
  });
  bus.on(CancelHotel, hotel, did("hotel", "undo"));
  const cars = { consumer: "cars" };
  bus.on(BookCar, cars, async (m, c) => {
    if (m.data.fate === "no car") throw refuse("no car");
    if (m.data.fate === "slow car") await new Promise((resolve) => setTimeout(resolve, 3_500));
    await did("travel.car", "do")(m, c);
    return { car: "1" };
  });
  bus.on(CancelCar, cars, did("travel.car", "undo"));
  const flights = { consumer: "flights" };
  bus.on(BookFlight, flights, async (m, c) => {
    if (m.data.fate === "no flight") throw refuse("no flight");
    await did("travel.flight", "do")(m, c);
    return { seat: "1" };
  });
  bus.on(CancelFlight, flights, did("travel.flight", "undo"));
  bus.on(SendTickets, { consumer: "tickets" }, async (m, c) => {
    await did("tickets", "do")(m, c);
    return { sent: true };
  });
}

interface EndedSaga {
  readonly id: string;
  readonly status: string;
}

/** I-13 from the participants' own books. */
export async function judgeTrips(pool: pg.Pool): Promise<string[]> {
  const sagas = await pool.query<EndedSaga>(
    "select id, status from sagabox.saga_instance where saga_type = 'book-trip'",
  );
  const actions = await pool.query<{ saga: string; step: string; act: string }>(
    "select saga, step, act from s_action order by n",
  );
  const books = new Map<string, { step: string; act: string }[]>();
  for (const { saga, step, act } of actions.rows) {
    const book = books.get(saga);
    if (book === undefined) books.set(saga, [{ step, act }]);
    else book.push({ step, act });
  }
  return sagas.rows.flatMap((one) =>
    findViolations(one, books.get(one.id) ?? []).map((wrong) => `${one.id}: ${wrong}`),
  );
}

const STEPS = ["open", "hotel", "pay", "travel.car", "travel.flight", "confirm", "tickets"];
const RANK: Readonly<Record<string, number>> = {
  open: 1,
  hotel: 2,
  pay: 3,
  "travel.car": 4,
  "travel.flight": 4,
  confirm: 5,
  tickets: 6,
};

// Books must be right however the trip ended; how many have to succeed follows from the fates they were given.
function findViolations({ status }: EndedSaga, book: readonly { step: string; act: string }[]): string[] {
  const count = (step: string, act: string): number =>
    book.filter((line) => line.step === step && line.act === act).length;
  if (status === "completed") {
    return STEPS.flatMap((step) => {
      const [done, undone] = [count(step, "do"), count(step, "undo")];
      return done === 1 && undone === 0
        ? []
        : [`completed, but ${step} was done ${done} and undone ${undone} times`];
    });
  }
  if (status !== "compensated") return [`it is ${status}`];
  const counts = STEPS.flatMap((step) => {
    const [done, undone] = [count(step, "do"), count(step, "undo")];
    return done <= 1 && done === undone
      ? []
      : [`compensated, but ${step} was done ${done} and undone ${undone} times`];
  });
  const undos = book.filter(({ act }) => act === "undo").map(({ step }) => RANK[step] ?? 0);
  const disorder = undos.some((rank, index) => index > 0 && rank > (undos[index - 1] ?? 0));
  return disorder ? [...counts, "undone in the wrong order"] : counts;
}
