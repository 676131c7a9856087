import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Copies the partitions of a Kafka topic to the queues with the same numbers of a topic of RocketMQ until it is killed, with
 * the consumer settings of a tuned MirrorMaker 2: batches as they are polled, one in flight for each queue. Arguments:
 * bootstrap, name servers, topic, topic at the target, most records of a poll.
 */
public class FromKafka {
    public static void main(String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        String topic = arguments[2], to = arguments[3];
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "bootstrap.servers", arguments[0], "enable.auto.commit", "false", "auto.offset.reset", "earliest",
                "max.poll.records", arguments[4],
                "max.partition.fetch.bytes", "4194304", "fetch.min.bytes", "1"));
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        DefaultMQProducer producer = new DefaultMQProducer("bench-copier");
        producer.setNamesrvAddr(arguments[1]);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        Map<Integer, MessageQueue> target = new HashMap<>();
        Map<Integer, Semaphore> free = new HashMap<>();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(to)) {
            target.put(queue.getQueueId(), queue);
            free.put(queue.getQueueId(), new Semaphore(1));
        }
        List<TopicPartition> partitions = new ArrayList<>();
        for (PartitionInfo each : consumer.partitionsFor(topic)) {
            partitions.add(new TopicPartition(topic, each.partition()));
        }
        consumer.assign(partitions);
        while (true) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
            for (TopicPartition partition : polled.partitions()) {
                List<Message> copies = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : polled.records(partition)) {
                    copies.add(copy(record, to));
                }
                Semaphore one = free.get(partition.partition());
                one.acquire();
                send(producer, copies, target.get(partition.partition()), one);
            }
        }
    }

    /** Sends a batch again if the target was busy, as the Java client does for requests that a caller waits for. */
    private static void send(DefaultMQProducer producer, List<Message> copies, MessageQueue queue, Semaphore free)
            throws Exception {
        producer.send(copies, queue, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
                try {
                    send(producer, copies, queue, free);
                } catch (Exception again) {
                    again.printStackTrace();
                    System.exit(1);
                }
            }
        });
    }

    private static Message copy(ConsumerRecord<byte[], byte[]> record, String to) {
        Message copy = new Message(to, record.value());
        if (record.key() != null) {
            copy.setKeys(new String(record.key(), StandardCharsets.UTF_8));
        }
        for (Header header : record.headers()) {
            copy.putUserProperty(header.key(), new String(header.value(), StandardCharsets.UTF_8));
        }
        return copy;
    }
}
