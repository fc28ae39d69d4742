interface Answer {
  readonly status?: string;
}

interface TellingClient {
  getTransactionStatus(): string | null;
  readonly connection: {
    on(event: "readyForQuery", hear: (answer: Answer) => void): unknown;
    removeListener(event: "readyForQuery", hear: (answer: Answer) => void): unknown;
  };
}

/**
 * Calls back when the open transaction of a caller's `pg` client has ended, be it by COMMIT or by ROLLBACK. False when
 * this client cannot tell.
 */
export function whenEnded(client: object, told: () => void): boolean {
  if (!isTelling(client) || client.getTransactionStatus() !== "T") return false;
  const { connection } = client;
  const hear = ({ status }: Answer): void => {
    if (status !== "I") return;
    connection.removeListener("readyForQuery", hear);
    told();
  };
  connection.on("readyForQuery", hear);
  return true;
}

function isTelling(client: object): client is TellingClient {
  const { connection, getTransactionStatus } = client as Partial<TellingClient>;
  return (
    typeof getTransactionStatus === "function" &&
    typeof connection?.on === "function" &&
    typeof connection.removeListener === "function"
  );
}
