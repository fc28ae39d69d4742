// #region saga
import { event, saga } from "sagabox";
import { z } from "zod";
import { DAY } from "./day.ts";
import { mail } from "./mail.ts";

export const ExpenseDecided = event("expenses.decided", {
  schema: z.object({ expenseId: z.string(), approved: z.boolean() }),
  key: (decision) => decision.expenseId, // the key of the saga it is for
});

export const approveExpense = saga("expense-approval", {
  version: 1,
  input: z.object({ expenseId: z.string(), employee: z.string(), cents: z.number().int() }),
  key: (expense) => expense.expenseId,
})
  .tx("submit", async ({ input, tx }) => {
    await tx.query("insert into expense (id, state) values ($1, 'submitted')", [input.expenseId]);
  })
  .undo(async ({ input, tx }) => {
    await tx.query("update expense set state = 'withdrawn' where id = $1", [input.expenseId]);
  })
  .repeat(
    "patience",
    (s) =>
      s.waitFor("decision", ExpenseDecided, { timeout: 3 * DAY, onTimeout: "continue" }).when(
        "silence",
        ({ steps }) => steps.decision === null,
        (quiet) =>
          quiet
            .run("remind", (c) => mail.send(c.idempotencyKey, "manager", `expense of ${c.input.employee}`))
            .noUndo("a reminder cannot be taken back"),
      ),
    ({ steps }) => steps.decision !== null,
    { max: 3 }, // nine days and three reminders, then the expense is withdrawn
  )
  .choose("verdict", ({ steps }) => (steps.decision?.approved === true ? "approved" : "declined"), {
    approved: (s) =>
      s
        .tx("approve", async ({ input, tx }) => {
          await tx.query("update expense set state = 'approved' where id = $1", [input.expenseId]);
        })
        .undo(async ({ input, tx }) => {
          await tx.query("update expense set state = 'submitted' where id = $1", [input.expenseId]);
        }),
    declined: (s) =>
      s
        .tx("decline", async ({ input, tx }) => {
          await tx.query("update expense set state = 'declined' where id = $1", [input.expenseId]);
        })
        .noUndo("a decision stays"),
  });
// #endregion saga
