/** What really happened outside. Nothing keeps it from happening twice. */
export interface Row {
  readonly nr: number;
  readonly sagaId: string;
  readonly place: string;
  readonly what: "do" | "undo";
  /** The epoch of the undo that did it. */
  readonly epoch: number;
}

export class Ledger {
  readonly rows: Row[] = [];

  write(sagaId: string, place: string, what: Row["what"], epoch = 1): void {
    this.rows.push({ nr: this.rows.length + 1, sagaId, place, what, epoch });
  }

  of(sagaId: string, place: string): readonly Row[] {
    return this.rows.filter((row) => row.sagaId === sagaId && row.place === place);
  }
}
