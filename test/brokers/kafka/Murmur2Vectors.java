import java.nio.charset.StandardCharsets;
import java.util.Scanner;
import org.apache.kafka.common.utils.Utils;

/** For each line on standard input, the hash that Kafka's own producer gives to it. */
public class Murmur2Vectors {
  public static void main(String[] args) {
    Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
    StringBuilder hashes = new StringBuilder();
    while (lines.hasNextLine()) {
      hashes.append(Utils.murmur2(lines.nextLine().getBytes(StandardCharsets.UTF_8))).append('\n');
    }
    System.out.print(hashes);
  }
}
