import pg from "pg";
import { createBus, type Bus, type BusOptions } from "sagabox";
import { inject, onTestFinished } from "vitest";
import { roleNames, rolesSql, type Extra, type RoleName } from "../../src/admin/index.ts";
import { temporaryDatabase, type TemporaryDatabase } from "./database.ts";
import { RecordingObserver } from "./recording-observer.ts";

export interface RolesHarness extends TemporaryDatabase {
  readonly prefix: string;
  readonly observer: RecordingObserver;
  /** The address for a login role that is a member of these roles and may do nothing else. */
  readonly login: (...roles: readonly RoleName[]) => Promise<string>;
  /** One connection pool as such a login role. */
  readonly as: (...roles: readonly RoleName[]) => Promise<pg.Pool>;
  /** A bus of a process of its own, connected as such a login role. */
  readonly bus: (roles: readonly RoleName[], options?: Partial<BusOptions>) => Promise<Bus>;
  /** What any of those processes could not do in its database. */
  readonly troubles: () => readonly string[];
  /** As the administrator. */
  readonly count: (table: string, where?: string) => Promise<number>;
}

/** A migrated database whose roles have exactly the rights that the script gives them. */
export async function rolesHarness(extras: readonly Extra[] = []): Promise<RolesHarness> {
  const made: string[] = [];
  // Registered first and so run last: a role can go when the database with its rights is gone.
  onTestFinished(() => dropRoles(made));
  const database = await temporaryDatabase({ migrated: true });
  const prefix = `${database.name}_`;
  made.push(...roleNames.map((name) => `${prefix}${name}`));
  await database.pool.query(rolesSql({ schema: "sagabox", prefix, extras }));
  const observer = new RecordingObserver();
  const login = async (...roles: readonly RoleName[]): Promise<string> => {
    const name = `${prefix}login_${made.length}`;
    made.push(name);
    const groups = roles.map((role) => `"${prefix}${role}"`).join(", ");
    await database.pool.query(
      `create role "${name}" login password 'x'${groups === "" ? "" : `; grant ${groups} to "${name}"`}`,
    );
    const url = new URL(database.url);
    [url.username, url.password] = [name, "x"];
    return url.href;
  };
  return {
    ...database,
    prefix,
    observer,
    login,
    as: async (...roles) => {
      const pool = new pg.Pool({ connectionString: await login(...roles), max: 3 });
      onTestFinished(() => pool.end());
      return pool;
    },
    bus: async (roles, options = {}) => {
      const url = await login(...roles);
      const optimistic = extras.includes("optimistic");
      const bus = createBus({
        service: "shop",
        database: url,
        log: false,
        observers: [observer],
        outbox: { optimistic },
        sagas: { pollInterval: 50 },
        ...options,
      });
      onTestFinished(async () => void (await bus.stop()));
      return bus;
    },
    count: async (table, where = "true") => {
      const { rows } = await database.pool.query<{ n: number }>(
        `select count(*)::int as n from sagabox.${table} where ${where}`,
      );
      return rows[0]?.n ?? 0;
    },
    troubles: () => observer.of("storage.failed").map(({ doing, error }) => `${doing}: ${error}`),
  };
}

/** Roles belong to the whole server, so the harness drops them after their database. */
export async function dropRoles(names: readonly string[]): Promise<void> {
  await asAdmin(names.map((role) => `drop role if exists "${role}"`).join(";"));
}

async function asAdmin(sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: inject("postgresUrl") });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
