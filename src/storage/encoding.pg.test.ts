import { createBus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { migrateUp, migrationSql } from "./migrate.ts";
import { pgDatabase } from "./drivers/pg.ts";

test.each(["LATIN1", "WIN1252", "EUC_JP", "SQL_ASCII"])(
  "a database with the encoding %s is refused in one line, and nothing is made in it",
  async (encoding) => {
    const { name, pool, url } = await temporaryDatabase({ encoding });
    const message = expect.stringMatching(
      new RegExp(
        `^Database "${name}" has the encoding ${encoding}, but must have UTF8: [^\n]*template0[^\n]*$`,
      ),
    ) as string;
    const refused = { code: "STORAGE_ENCODING_UNSUPPORTED", message };
    await expect(migrateUp(pgDatabase(pool), "sagabox")).rejects.toMatchObject(refused);
    const bus = createBus({ service: "shop", database: pool, log: false });
    onTestFinished(async () => void (await bus.stop()));
    await expect(bus.migrate()).rejects.toMatchObject(refused);
    const { rows } = await pool.query("select to_regnamespace('sagabox') as found");
    expect(rows).toEqual([{ found: null }]);
    const doctor = await cliInProcess(["doctor"], { DATABASE_URL: url });
    expect(doctor).toMatchObject({ code: 3, stdout: expect.stringContaining(`the encoding ${encoding}`) });
    const up = await cliInProcess(["migrate", "up"], { DATABASE_URL: url });
    expect([up.code, up.stderr.trim().split("\n")]).toEqual([1, [expect.stringContaining(encoding)]]);
  },
);

test("the printed SQL refuses another encoding with its first statement", async () => {
  const { pool } = await temporaryDatabase({ encoding: "LATIN1" });
  const [first = ""] = migrationSql("sagabox").split("\n\n");
  await expect(pool.query(first)).rejects.toThrow(/has the encoding LATIN1, but must have UTF8/);
  const utf8 = await temporaryDatabase();
  await utf8.pool.query(first);
});
