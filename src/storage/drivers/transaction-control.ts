/** A statement in a SQL text that ends the transaction it runs in, or that uses a savepoint of it. */
export interface TransactionControl {
  readonly kind: "end" | "savepoint";
  /** Its first words in upper case, for error messages. */
  readonly command: string;
}

// Nearly every text has none of these words, and then this one search is all that it costs.
// END is looked for only where a statement can begin, since every CASE has one.
const KEYWORD = /\b(?:savepoint|release|rollback|commit|abort|prepare)\b|(?:^|[;/\n\r])\s*end\b/i;

// A body in standard SQL (BEGIN ATOMIC … END) has an END of its own. An END that is overlooked here is still seen on the
// wire.
const SQL_BODY = /\batomic\b/i;

// Each alternative ends at the end of the text at the latest, so none of them backtracks. A doubled quote reads as two
// strings.
const TOKEN = new RegExp(
  [
    String.raw`\s+|--[^\n\r]*`,
    String.raw`[eE]'(?:[^'\\]+|''|\\(?:.|$))*(?:'|$)`,
    String.raw`'[^']*(?:'|$)`,
    String.raw`"[^"]*(?:"|$)`,
    String.raw`(/\*)`,
    String.raw`(\$(?:[a-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$)`,
    String.raw`([a-z_\u0080-\uffff][\w$\u0080-\uffff]*)`,
    String.raw`(;)`,
    String.raw`([^\s'"$/\-;a-z_\u0080-\uffff]+|.)`,
  ].join("|"),
  "iys",
);

/**
 * Finds the statement in `text` that ends the transaction, or else the first one that uses a savepoint. Reads strings,
 * quoted names, dollar quotes and nested comments as PostgreSQL does, so words inside them are not taken for commands.
 */
export function findTransactionControl(text: string): TransactionControl | undefined {
  if (!KEYWORD.test(text)) return undefined;
  let savepoint: TransactionControl | undefined;
  for (const words of readLeadingWords(text)) {
    const found = parseControl(words);
    if (found?.kind === "end" && !(found.command === "END" && SQL_BODY.test(text))) return found;
    if (found?.kind === "savepoint") savepoint ??= found;
  }
  return savepoint;
}

/** The command tags with which the server answers the statements in `text` that use savepoints, in their order. */
export function findSavepointTags(text: string): string[] {
  if (!KEYWORD.test(text)) return [];
  return readLeadingWords(text).flatMap((words) => {
    const found = parseControl(words);
    return found?.kind === "savepoint" ? [found.command === "ROLLBACK TO" ? "ROLLBACK" : found.command] : [];
  });
}

function parseControl([first, second, third]: readonly string[]): TransactionControl | undefined {
  switch (first) {
    case "savepoint":
    case "release":
      return { kind: "savepoint", command: first.toUpperCase() };
    case "rollback":
      if (second === "prepared") return undefined; // PostgreSQL refuses it inside a transaction
      if (second === "to" || ((second === "work" || second === "transaction") && third === "to"))
        return { kind: "savepoint", command: "ROLLBACK TO" };
      return { kind: "end", command: "ROLLBACK" };
    case "commit":
      return second === "prepared" ? undefined : { kind: "end", command: "COMMIT" };
    case "end":
    case "abort":
      return { kind: "end", command: first.toUpperCase() };
    case "prepare":
      return second === "transaction" ? { kind: "end", command: "PREPARE TRANSACTION" } : undefined;
    default:
      return undefined;
  }
}

/** The first words, at most three, of each statement in a text. */
function readLeadingWords(text: string): string[][] {
  const statements: string[][] = [];
  let words: string[] = [];
  let isLeading = true;
  let at = 0;
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const token = TOKEN.exec(text);
    if (token === null) break;
    const [, comment, dollar, word, end, other] = token;
    at = TOKEN.lastIndex;
    if (comment !== undefined) at = findCommentEnd(text, at);
    else if (dollar !== undefined) {
      const close = text.indexOf(dollar, at);
      at = close < 0 ? text.length : close + dollar.length;
    } else if (end !== undefined) {
      statements.push(words);
      [words, isLeading] = [[], true];
    } else if (word !== undefined && isLeading) isLeading = words.push(word.toLowerCase()) < 3;
    else if (other !== undefined) isLeading = false;
  }
  return [...statements, words];
}

// Comments nest in PostgreSQL.
function findCommentEnd(text: string, from: number): number {
  const edge = /\/\*|\*\//g;
  edge.lastIndex = from;
  for (let depth = 1; depth > 0;) {
    const found = edge.exec(text);
    if (found === null) return text.length;
    depth += found[0] === "/*" ? 1 : -1;
  }
  return edge.lastIndex;
}
