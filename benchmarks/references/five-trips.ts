import type { Pool, PoolClient } from "pg";
import type { BenchDatabase } from "../harness/server.ts";

const AT_ONCE = 8;
const STATE = JSON.stringify({
  step: 1,
  results: { first: { id: "x" } },
  note: "as much as one step leaves",
});

/** One transition of a saga by hand: begin, load, update, insert of a command, commit; five trips to the server. */
export class FiveTrips {
  readonly #database: BenchDatabase;
  readonly #pool: Pool;

  private constructor(place: BenchDatabase, pool: Pool) {
    this.#database = place;
    this.#pool = pool;
  }

  static async open(place: BenchDatabase): Promise<FiveTrips> {
    await place.admin.query(`
      create table instance (id int primary key, version int not null, status text not null, state json not null,
        updated_at timestamptz not null default now());
      create index on instance (status, updated_at);
      create table command (id bigint generated always as identity primary key, instance int not null, body text)`);
    return new FiveTrips(place, place.pool(AT_ONCE));
  }

  /** Transitions a second, eight sagas at a time. */
  rate(sagas: number, steps: number): Promise<number> {
    return this.#rate(sagas, steps, fiveTrips);
  }

  /** The least that could be called a step: load, then one statement that checks, updates and inserts. */
  sketchRate(sagas: number, steps: number): Promise<number> {
    return this.#rate(sagas, steps, twoTrips);
  }

  async #rate(
    sagas: number,
    steps: number,
    step: (client: PoolClient, id: number) => Promise<void>,
  ): Promise<number> {
    await this.#database.admin.query("truncate instance, command");
    await this.#database.admin.query(
      "insert into instance (id, version, status, state) select n, 0, 'running', $1 from generate_series(1, $2) n",
      [STATE, sagas],
    );
    const began = performance.now();
    let next = 1;
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        const client = await this.#pool.connect();
        for (let id = next++; id <= sagas; id = next++) {
          for (let n = 0; n < steps; n++) await step(client, id);
        }
        client.release();
      }),
    );
    return ((sagas * steps) / (performance.now() - began)) * 1_000;
  }
}

async function fiveTrips(client: PoolClient, id: number): Promise<void> {
  await client.query("begin");
  const loaded = await client.query<{ version: number }>({
    name: "load",
    text: "select version, state from instance where id = $1 for update",
    values: [id],
  });
  await client.query({
    name: "save",
    text: "update instance set version = version + 1, state = $3, updated_at = now() where id = $1 and version = $2",
    values: [id, loaded.rows[0]?.version, STATE],
  });
  await client.query({
    name: "send",
    text: "insert into command (instance, body) values ($1, $2)",
    values: [id, STATE],
  });
  await client.query("commit");
}

async function twoTrips(client: PoolClient, id: number): Promise<void> {
  const loaded = await client.query<{ version: number }>({
    name: "look",
    text: "select version, state from instance where id = $1",
    values: [id],
  });
  await client.query({
    name: "step",
    text: `with saved as (
             update instance set version = version + 1, state = $3::json, updated_at = now()
              where id = $1 and version = $2 returning id)
           insert into command (instance, body) select id, $4 from saved`,
    values: [id, loaded.rows[0]?.version, STATE, STATE],
  });
}
